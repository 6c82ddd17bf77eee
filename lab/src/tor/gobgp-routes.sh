#!/bin/sh
# GoBGP keeps its routes to itself: this follows its table and writes the routes of others into the kernel, marked with
# protocol bgp. Ends with gobgpd.
set -u
follow() { # follow FAMILY IP-OPTION
    gobgp monitor global rib --current -a "$1" | while read -r _ tag prefix _ next_hop _; do
        case "$tag $next_hop" in
        "[ROUTE] 0.0.0.0" | "[ROUTE] ::") ;; # its own
        "[ROUTE] "*) ip "$2" route replace "$prefix" via "$next_hop" proto bgp ;;
        "[DELROUTE] "*) ip "$2" route del "$prefix" proto bgp ;;
        esac
    done
}
ip -4 route flush proto bgp
ip -6 route flush proto bgp
until gobgp global >/dev/null 2>&1; do sleep 0.1; done
follow ipv4 -4 &
follow ipv6 -6 &
wait
