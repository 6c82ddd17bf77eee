//! The store over the Kubernetes API.

use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, PostParams, Preconditions,
};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Client, ResourceExt};
use margay_crds::{
    BlockAffinity, ClusterInformation, IPAMBlock, IPAMConfiguration, IPAMHandle, IPPool,
    IPReservation,
};
use serde_json::Value;

use super::{Change, Filter, Kind, Result, Store, StoreError};

/// Objects per page of a list.
const PAGE: u32 = 500;

/// Objects in a Kubernetes API server.
#[derive(Clone)]
pub struct KubeStore {
    client: Client,
}

impl std::fmt::Debug for KubeStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KubeStore")
    }
}

impl KubeStore {
    /// A store over the given client.
    pub fn new(client: Client) -> Self {
        KubeStore { client }
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource(kind))
    }
}

fn resource(kind: Kind) -> ApiResource {
    match kind {
        Kind::Pool => ApiResource::erase::<IPPool>(&()),
        Kind::Block => ApiResource::erase::<IPAMBlock>(&()),
        Kind::Affinity => ApiResource::erase::<BlockAffinity>(&()),
        Kind::Handle => ApiResource::erase::<IPAMHandle>(&()),
        Kind::Configuration => ApiResource::erase::<IPAMConfiguration>(&()),
        Kind::Reservation => ApiResource::erase::<IPReservation>(&()),
        Kind::Node => ApiResource::erase::<Node>(&()),
        Kind::Cluster => ApiResource::erase::<ClusterInformation>(&()),
    }
}

fn list_params(filter: &Filter) -> ListParams {
    match filter {
        Filter::All => ListParams::default(),
        Filter::Labels(selector) => ListParams::default().labels(selector),
        Filter::Name(name) => ListParams::default().fields(&format!("metadata.name={name}")),
    }
}

fn watch_config(filter: &Filter) -> watcher::Config {
    match filter {
        Filter::All => watcher::Config::default(),
        Filter::Labels(selector) => watcher::Config::default().labels(selector),
        Filter::Name(name) => watcher::Config::default().fields(&format!("metadata.name={name}")),
    }
}

/// What kind of request failed; it decides whether the outcome is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

fn translate(error: kube::Error, access: Access) -> StoreError {
    let unknown = |text: String| match access {
        Access::Read => StoreError::Unavailable(text),
        Access::Write => StoreError::Ambiguous(text),
    };
    match error {
        kube::Error::Api(status) => {
            let text = format!("{} ({})", status.message, status.code);
            match status.code {
                404 | 410 => StoreError::NotFound,
                409 if status.is_already_exists() => StoreError::AlreadyExists,
                409 if mentions_uid(&status.message) => StoreError::NotFound,
                409 => StoreError::Conflict,
                401 | 403 => StoreError::Forbidden(text),
                429 => StoreError::Unavailable(text),
                500..=599 => unknown(text),
                _ => StoreError::Invalid(text),
            }
        }
        // The request never left: it could not be built.
        kube::Error::BuildRequest(error) => StoreError::Invalid(error.to_string()),
        kube::Error::SerdeError(error) if access == Access::Read => {
            StoreError::Invalid(error.to_string())
        }
        other => unknown(other.to_string()),
    }
}

/// True for the conflict of a delete whose object is another one of the same name: what was meant is gone. API servers
/// have two wordings for it, one each from the storage and from the admission of the delete.
fn mentions_uid(message: &str) -> bool {
    message.contains("UID in precondition") || message.contains("UID in the precondition")
}

fn typed(value: Value) -> Result<DynamicObject> {
    serde_json::from_value(value).map_err(|error| StoreError::Invalid(error.to_string()))
}

fn untyped(object: DynamicObject) -> Result<Value> {
    serde_json::to_value(object).map_err(|error| StoreError::Invalid(error.to_string()))
}

impl Store for KubeStore {
    fn get<'a>(&'a self, kind: Kind, name: &'a str) -> BoxFuture<'a, Result<Value>> {
        Box::pin(async move {
            untyped(
                self.api(kind)
                    .get(name)
                    .await
                    .map_err(|e| translate(e, Access::Read))?,
            )
        })
    }

    fn list<'a>(&'a self, kind: Kind, filter: &'a Filter) -> BoxFuture<'a, Result<Vec<Value>>> {
        Box::pin(async move {
            let api = self.api(kind);
            let mut params = list_params(filter).limit(PAGE);
            let mut objects = Vec::new();
            loop {
                let page = api
                    .list(&params)
                    .await
                    .map_err(|e| translate(e, Access::Read))?;
                let next = page
                    .metadata
                    .continue_
                    .clone()
                    .filter(|token| !token.is_empty());
                for mut object in page.items {
                    // Items of a list carry no type of their own.
                    object.types.get_or_insert_with(|| {
                        let resource = resource(kind);
                        kube::core::TypeMeta {
                            api_version: resource.api_version,
                            kind: resource.kind,
                        }
                    });
                    objects.push(untyped(object)?);
                }
                match next {
                    Some(token) => params = list_params(filter).limit(PAGE).continue_token(&token),
                    None => return Ok(objects),
                }
            }
        })
    }

    fn names(&self, kind: Kind) -> BoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async move {
            // Version 0: any state the API server has in memory will do; whoever acts on a name checks by writing.
            let params = ListParams::default().match_any();
            let list = self
                .api(kind)
                .list_metadata(&params)
                .await
                .map_err(|e| translate(e, Access::Read))?;
            Ok(list.items.iter().map(ResourceExt::name_any).collect())
        })
    }

    fn create(&self, kind: Kind, object: Value) -> BoxFuture<'_, Result<Value>> {
        Box::pin(async move {
            let object = typed(object)?;
            let created = self.api(kind).create(&PostParams::default(), &object).await;
            untyped(created.map_err(|e| translate(e, Access::Write))?)
        })
    }

    fn update(&self, kind: Kind, object: Value) -> BoxFuture<'_, Result<Value>> {
        Box::pin(async move {
            let object = typed(object)?;
            let name = object.name_any();
            let updated = self
                .api(kind)
                .replace(&name, &PostParams::default(), &object)
                .await;
            untyped(updated.map_err(|e| translate(e, Access::Write))?)
        })
    }

    fn delete<'a>(
        &'a self,
        kind: Kind,
        name: &'a str,
        uid: &'a str,
        version: &'a str,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: Some(uid.to_owned()),
                    resource_version: Some(version.to_owned()),
                }),
                ..DeleteParams::default()
            };
            let deleted = self.api(kind).delete(name, &params).await;
            deleted.map(|_| ()).map_err(|e| translate(e, Access::Write))
        })
    }

    fn watch(&self, kind: Kind, filter: Filter) -> BoxStream<'static, Change> {
        let stream = watch(self.api(kind), watch_config(&filter)).default_backoff();
        let types = resource(kind);
        let mut listing = Vec::new();
        stream
            .filter_map(move |event| {
                let change = reduce(&mut listing, event, &types);
                async move { change }
            })
            .boxed()
    }
}

/// Gathers the initial objects of a watch into one change.
fn reduce(
    listing: &mut Vec<Value>,
    event: std::result::Result<Event<DynamicObject>, watcher::Error>,
    types: &ApiResource,
) -> Option<Change> {
    let value = |mut object: DynamicObject| {
        object.types.get_or_insert_with(|| kube::core::TypeMeta {
            api_version: types.api_version.clone(),
            kind: types.kind.clone(),
        });
        untyped(object).ok()
    };
    match event {
        Ok(Event::Init) => {
            listing.clear();
            None
        }
        Ok(Event::InitApply(object)) => {
            listing.extend(value(object));
            None
        }
        Ok(Event::InitDone) => Some(Change::Restart(std::mem::take(listing))),
        Ok(Event::Apply(object)) => value(object).map(Change::Applied),
        Ok(Event::Delete(object)) => value(object).map(Change::Deleted),
        Err(error) => Some(Change::Failed(StoreError::Unavailable(error.to_string()))),
    }
}
