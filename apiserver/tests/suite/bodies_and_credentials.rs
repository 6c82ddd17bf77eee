use std::os::unix::fs::PermissionsExt as _;

use http::{Method, header};
use margay_apiserver::auth::kubeconfig;
use margay_apiserver::auth::pki::Authority;

use crate::harness::{
    CONFIG_MAPS, POOLS, client, client_config, config_map, send, start, start_with,
};

const JSON: (header::HeaderName, &str) = (header::CONTENT_TYPE, "application/json");

#[tokio::test]
async fn malformed_and_oversized_requests_get_a_status() {
    let server = start().await;
    let post = |body: Vec<u8>, kind: &'static str| {
        let headers = [(header::CONTENT_TYPE, kind)];
        let client = server.client.clone();
        async move { send(&client, Method::POST, CONFIG_MAPS, &headers, body).await }
    };
    for body in [
        &b"{"[..],
        b"",
        b"[]",
        b"\xff\xfe",
        b"null",
        b"{\"kind\":\"Pod\"}",
    ] {
        let answer = post(body.to_vec(), "application/json").await;
        let status = answer.expect(400);
        assert_eq!(
            (&status["kind"], &status["reason"]),
            (&"Status".into(), &"BadRequest".into())
        );
    }
    let status = post(b"\0\0".to_vec(), "application/octet-stream")
        .await
        .expect(415);
    assert_eq!(status["kind"], "Status");
    let yaml = b"metadata:\n  name: from-yaml\ndata: {a: b}\n".to_vec();
    post(yaml, "application/yaml").await.expect(201);
    let huge = format!("{{\"data\":{{\"x\":\"{}\"}}}}", "x".repeat(3 * 1024 * 1024));
    let status = post(huge.into_bytes(), "application/json")
        .await
        .expect(413);
    assert_eq!(status["reason"], "RequestEntityTooLarge");
    let deep = "[".repeat(100_000).into_bytes();
    post(deep, "application/json").await.expect(400);
    let broken_protobuf = b"k8s\0\x0a\xff".to_vec();
    post(broken_protobuf, "application/vnd.kubernetes.protobuf")
        .await
        .expect(400);
}

#[tokio::test]
async fn what_is_not_served_gets_a_status() {
    let server = start().await;
    for path in [
        "/nonsense",
        "/api/v2",
        "/api/v1/nonsense",
        "/apis/projectcalico.org/v3/nonsense",
    ] {
        let status = server.get(path).await.expect(404);
        assert_eq!(status["kind"], "Status", "{path}");
    }
    send(
        &server.client,
        Method::POST,
        "/version",
        &[JSON],
        b"{}".to_vec(),
    )
    .await
    .expect(200);
    send(
        &server.client,
        Method::POST,
        "/apis",
        &[JSON],
        b"{}".to_vec(),
    )
    .await
    .expect(405);
    send(&server.client, Method::PUT, POOLS, &[JSON], b"{}".to_vec())
        .await
        .expect(405);
    let protobuf = "application/vnd.kubernetes.protobuf";
    server.get_as(POOLS, protobuf).await.expect(406);
    server.get(&format!("{POOLS}?limit=many")).await.expect(400);
    server.get(&format!("{POOLS}/a/nonsense")).await.expect(404);
}

#[tokio::test]
async fn anonymous_clients_see_health_and_version_only() {
    let server = start().await;
    let mut config = client_config(&server.kubeconfig()).await;
    config.auth_info = kube::config::AuthInfo::default();
    let anonymous = kube::Client::try_from(config).unwrap();
    for path in ["/livez", "/readyz", "/healthz", "/version"] {
        send(&anonymous, Method::GET, path, &[], Vec::new())
            .await
            .expect(200);
    }
    for path in ["/", "/api", "/apis", "/openapi/v3", POOLS, CONFIG_MAPS] {
        let status = send(&anonymous, Method::GET, path, &[], Vec::new())
            .await
            .expect(401);
        assert_eq!(
            (&status["kind"], &status["reason"]),
            (&"Status".into(), &"Unauthorized".into())
        );
    }
}

#[tokio::test]
async fn tokens_from_the_file_are_credentials() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    std::fs::write(&file, "s3cret-for-tests,ada,1,\"ops\"\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let server = start_with(|c| c.token_file = Some(file)).await;
    let mut config = client_config(&server.kubeconfig()).await;
    config.auth_info = kube::config::AuthInfo::default();
    let plain = kube::Client::try_from(config).unwrap();
    let with = |token: &'static str| [(header::AUTHORIZATION, token)];
    let good = with("Bearer s3cret-for-tests");
    send(&plain, Method::GET, CONFIG_MAPS, &good, Vec::new())
        .await
        .expect(200);
    for bad in [
        "Bearer wrong",
        "Bearer ",
        "Basic czNjcmV0",
        "s3cret-for-tests",
    ] {
        send(&plain, Method::GET, CONFIG_MAPS, &with(bad), Vec::new())
            .await
            .expect(401);
    }
}

#[tokio::test]
async fn certificates_issued_later_work_and_those_of_others_do_not() {
    let server = start().await;
    let mode = std::fs::metadata(server.kubeconfig())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let out = server.directory.path().join("ada.kubeconfig");
    let authority = Authority::open(server.directory.path()).unwrap();
    kubeconfig::write(&authority, "ada", Some("ops"), server.server.url(), &out).unwrap();
    let ada = client(&out).await;
    let made = send(
        &ada,
        Method::POST,
        CONFIG_MAPS,
        &[JSON],
        config_map("a").to_string().into_bytes(),
    );
    made.await.expect(201);
    let elsewhere = tempfile::tempdir().unwrap();
    let stranger = Authority::open_or_create(elsewhere.path()).unwrap();
    let forged = stranger.client("admin", Some("system:masters")).unwrap();
    let mut config = client_config(&server.kubeconfig()).await;
    use base64::Engine as _;
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    config.auth_info.client_certificate_data = Some(encode(&forged.certificate));
    config.auth_info.client_key_data = Some(encode(&forged.key).into());
    let forger = kube::Client::try_from(config).unwrap();
    let request = http::Request::get(CONFIG_MAPS).body(Vec::new()).unwrap();
    assert!(
        forger.request_text(request).await.is_err(),
        "the handshake fails"
    );
}

#[tokio::test]
async fn http_1_and_2_are_negotiated() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = start().await;
    let address = server.server.addresses()[0];
    let authority = Authority::open(server.directory.path()).unwrap();
    for (protocol, opening, expected) in [
        (
            &b"http/1.1"[..],
            "GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            &b"HTTP/1.1 200"[..],
        ),
        // The connection preface of HTTP/2 and an empty SETTINGS frame; the answer starts with a SETTINGS frame.
        (
            &b"h2"[..],
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
            &b"\0\0"[..],
        ),
    ] {
        let mut stream = tls(&authority, address, protocol).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
        stream.write_all(opening.as_bytes()).await.unwrap();
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, expected);
    }
}

async fn tls(
    authority: &Authority,
    address: std::net::SocketAddr,
    protocol: &[u8],
) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
    use rustls::pki_types::pem::PemObject as _;
    let certificate = authority.certificate().as_bytes();
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(rustls::pki_types::CertificateDer::from_pem_slice(certificate).unwrap())
        .unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    connector
        .connect("localhost".try_into().unwrap(), stream)
        .await
        .unwrap()
}
