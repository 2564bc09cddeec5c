package alto

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/aggregate"
)

// maxPairs bounds the pairs of endpoints in a request.
const maxPairs = 1 << 16

// parseEndpoint parses a TypedEndpointAddr (RFC 7285, section 10.4.4) such as ipv4:192.0.2.1.
func parseEndpoint(text string) (netip.Addr, bool) {
	kind, rest, ok := strings.Cut(text, ":")
	a, err := netip.ParseAddr(rest)
	switch {
	case !ok, err != nil, a.Zone() != "":
		return a, false
	case kind == typeIPv4:
		return a, a.Is4()
	}
	return a, kind == typeIPv6 && a.Is6()
}

// readEndpoints returns the PIDs of endpoints, by the endpoints' text.
func (n *network) readEndpoints(field string, list []string) (map[string]string, error) {
	pids := make(map[string]string, len(list))
	for _, text := range list {
		a, ok := parseEndpoint(text)
		if !ok {
			return nil, invalid(field, text)
		}
		if pid, ok := n.of.Lookup(a); ok {
			pids[text] = pid
		}
	}
	return pids, nil
}

// pidProperty is the property of an endpoint that names its PID.
const pidProperty = networkMapID + ".pid"

// endpointProperties is RFC 7285, section 11.4.1.
func (s *server) endpointProperties(r *http.Request) (any, error) {
	var in struct {
		Properties []string `json:"properties"`
		Endpoints  []string `json:"endpoints"`
	}
	if err := read(r, typeEndpointPropParams, &in); err != nil {
		return nil, err
	}
	if len(in.Properties) == 0 {
		return nil, missing("properties")
	}
	if len(in.Endpoints) == 0 {
		return nil, missing("endpoints")
	}
	for _, p := range in.Properties {
		if p != pidProperty {
			return nil, invalid("properties", p)
		}
	}
	n, err := s.network(r.Context())
	if err != nil {
		return nil, err
	}
	pids, err := n.readEndpoints("endpoints", in.Endpoints)
	if err != nil {
		return nil, err
	}
	out := make(map[string]map[string]string, len(pids))
	for endpoint, pid := range pids {
		out[endpoint] = map[string]string{pidProperty: pid}
	}
	return map[string]any{"meta": map[string]any{"dependent-vtags": []versionTag{n.tag}}, "endpoint-properties": out}, nil
}

// endpointCosts is RFC 7285, section 11.5.1: costs of endpoints are those of their PIDs.
func (s *server) endpointCosts(r *http.Request) (any, error) {
	var in struct {
		wanted
		Endpoints *struct {
			Src []string `json:"srcs"`
			Dst []string `json:"dsts"`
		} `json:"endpoints"`
	}
	if err := read(r, typeEndpointCostParams, &in); err != nil {
		return nil, err
	}
	k, limits, err := in.check()
	if err != nil {
		return nil, err
	}
	if in.Endpoints == nil || len(in.Endpoints.Src)+len(in.Endpoints.Dst) == 0 {
		return nil, missing("endpoints")
	}
	srcs, dsts := orClient(in.Endpoints.Src, r), orClient(in.Endpoints.Dst, r)
	if len(srcs)*len(dsts) > maxPairs {
		return nil, invalid("endpoints/srcs", "more pairs than one request may ask about")
	}
	n, err := s.network(r.Context())
	if err != nil {
		return nil, err
	}
	from, err := n.readEndpoints("endpoints/srcs", srcs)
	if err != nil {
		return nil, err
	}
	to, err := n.readEndpoints("endpoints/dsts", dsts)
	if err != nil {
		return nil, err
	}
	groups := make(map[string]aggregate.GroupID, len(n.name))
	for id, pid := range n.name {
		groups[pid] = id
	}
	latest, coverage := s.costsOf(k)
	out := costMapData{}
	for src, a := range from {
		for dst, b := range to {
			if cost, ok := latest[pair{groups[a], groups[b]}]; ok && met(limits, cost) {
				out.put(src, dst, cost)
			}
		}
	}
	meta := map[string]any{"cost-type": k.costType()}
	return &dated{map[string]any{"meta": meta, "endpoint-cost-map": out}, meta, s.freshness(coverage)}, nil
}

// orClient returns the endpoints or, if there are none, the address of the client.
func orClient(list []string, r *http.Request) []string {
	if len(list) > 0 {
		return slices.Compact(slices.Sorted(slices.Values(list)))
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	a, err := netip.ParseAddr(host)
	if err != nil {
		return nil
	}
	if a = a.Unmap().WithZone(""); a.Is4() {
		return []string{typeIPv4 + ":" + a.String()}
	}
	return []string{typeIPv6 + ":" + a.String()}
}
