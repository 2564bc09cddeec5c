package alto

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/table"
)

// Path is the prefix of all resources' paths.
const Path = "/alto/"

// Directory is the path of the information resource directory.
const Directory = Path + "directory"

// MaxWindows is the maximum number of recent windows in a mean cost.
const MaxWindows = 10

// Config configures New.
type Config struct {
	Memory *table.Memory
	// Groups returns all groups; cells name those without groups below them. An error with a list
	// means that more groups may become known later.
	Groups func(context.Context) ([]fabric.Group, error)
	// Prefixes returns the known addresses of groups; nil for none. Groups named after their
	// prefix need not be in it.
	Prefixes func() map[aggregate.GroupID][]netip.Prefix
	// WithSlot calls f once the process has capacity for another answer; nil: at once.
	WithSlot func(ctx context.Context, f func(context.Context) error) error
	Logger   *slog.Logger     // nil: discard
	Now      func() time.Time // nil: time.Now
}

// server serves the resources. It is safe for concurrent use.
type server struct {
	Config

	mu    sync.Mutex
	costs map[metric]*costs // of the latest requested revision

	reading sync.Mutex // held while groups are read
	known   *network   // the last one read
	readAt  time.Time
}

// New returns a handler for the resources under Path.
func New(c Config) http.Handler {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.WithSlot == nil {
		c.WithSlot = func(ctx context.Context, f func(context.Context) error) error { return f(ctx) }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &server{Config: c, costs: make(map[metric]*costs)}
	mux := http.NewServeMux()
	get := func(path, mediaType string, f func(*http.Request) (any, error)) {
		mux.Handle(Path+path, s.answer(http.MethodGet, mediaType, f))
	}
	post := func(path, mediaType string, f func(*http.Request) (any, error)) {
		mux.Handle(Path+path, s.answer(http.MethodPost, mediaType, f))
	}
	get("directory", typeDirectory, func(*http.Request) (any, error) { return directory(), nil })
	get("networkmap", typeNetworkMap, s.networkMap)
	post("networkmap/filtered", typeNetworkMap, s.filteredNetworkMap)
	for _, k := range kinds() {
		get("costmap/"+k.resource(), typeCostMap, func(r *http.Request) (any, error) { return s.costMap(r.Context(), k, nil, nil, nil) })
	}
	post("costmap/filtered", typeCostMap, s.filteredCostMap)
	post("endpointprop", typeEndpointProp, s.endpointProperties)
	post("endpointcost", typeEndpointCost, s.endpointCosts)
	return query.SecurityHeaders(mux)
}

// The media types of RFC 7285, section 14.1.
const (
	typeDirectory          = "application/alto-directory+json"
	typeNetworkMap         = "application/alto-networkmap+json"
	typeNetworkMapFilter   = "application/alto-networkmapfilter+json"
	typeCostMap            = "application/alto-costmap+json"
	typeCostMapFilter      = "application/alto-costmapfilter+json"
	typeEndpointProp       = "application/alto-endpointprop+json"
	typeEndpointPropParams = "application/alto-endpointpropparams+json"
	typeEndpointCost       = "application/alto-endpointcost+json"
	typeEndpointCostParams = "application/alto-endpointcostparams+json"
	typeError              = "application/alto-error+json"
)

// resource is an entry of the directory (RFC 7285, section 9.2.2).
type resource struct {
	URI          string         `json:"uri"`
	MediaType    string         `json:"media-type"`
	Accepts      string         `json:"accepts,omitempty"`
	Capabilities map[string]any `json:"capabilities,omitempty"`
	Uses         []string       `json:"uses,omitempty"`
}

// networkMapID is the resource ID of the network map.
const networkMapID = "csigscope-network-map"

// directory is the information resource directory. Its URIs are relative to its own.
func directory() any {
	types, names := map[string]costType{}, []string{}
	uses := []string{networkMapID}
	resources := map[string]resource{
		networkMapID:                     {URI: "networkmap", MediaType: typeNetworkMap},
		"csigscope-filtered-network-map": {URI: "networkmap/filtered", MediaType: typeNetworkMap, Accepts: typeNetworkMapFilter, Uses: uses},
		"csigscope-endpoint-property":    {URI: "endpointprop", MediaType: typeEndpointProp, Accepts: typeEndpointPropParams, Capabilities: map[string]any{"prop-types": []string{pidProperty}}},
	}
	for _, k := range kinds() {
		t := k.costType()
		t.Description = k.describe()
		types[k.resource()] = t
		names = append(names, k.resource())
		resources[fmt.Sprintf("csigscope-cost-map-%s", k.resource())] = resource{
			URI: "costmap/" + k.resource(), MediaType: typeCostMap, Uses: uses, Capabilities: map[string]any{"cost-type-names": []string{k.resource()}},
		}
	}
	filtered := map[string]any{"cost-type-names": names, "cost-constraints": true}
	resources["csigscope-filtered-cost-map"] = resource{URI: "costmap/filtered", MediaType: typeCostMap, Accepts: typeCostMapFilter, Capabilities: filtered, Uses: uses}
	resources["csigscope-endpoint-cost"] = resource{URI: "endpointcost", MediaType: typeEndpointCost, Accepts: typeEndpointCostParams, Capabilities: filtered}
	return map[string]any{
		"meta": map[string]any{"cost-types": types, "default-alto-network-map": networkMapID}, "resources": resources,
	}
}
