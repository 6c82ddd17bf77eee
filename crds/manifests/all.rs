// Written by margay-crd-gen.
&[
    ("margay.io_nodereports.yaml", include_str!("margay.io_nodereports.yaml")),
    ("projectcalico.org_bgpconfigurations.yaml", include_str!("projectcalico.org_bgpconfigurations.yaml")),
    ("projectcalico.org_bgpfilters.yaml", include_str!("projectcalico.org_bgpfilters.yaml")),
    ("projectcalico.org_bgppeers.yaml", include_str!("projectcalico.org_bgppeers.yaml")),
    ("projectcalico.org_blockaffinities.yaml", include_str!("projectcalico.org_blockaffinities.yaml")),
    ("projectcalico.org_clusterinformations.yaml", include_str!("projectcalico.org_clusterinformations.yaml")),
    ("projectcalico.org_felixconfigurations.yaml", include_str!("projectcalico.org_felixconfigurations.yaml")),
    ("projectcalico.org_ipamblocks.yaml", include_str!("projectcalico.org_ipamblocks.yaml")),
    ("projectcalico.org_ipamconfigurations.yaml", include_str!("projectcalico.org_ipamconfigurations.yaml")),
    ("projectcalico.org_ipamhandles.yaml", include_str!("projectcalico.org_ipamhandles.yaml")),
    ("projectcalico.org_ippools.yaml", include_str!("projectcalico.org_ippools.yaml")),
    ("projectcalico.org_ipreservations.yaml", include_str!("projectcalico.org_ipreservations.yaml")),
]
