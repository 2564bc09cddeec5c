package alto_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query/alto"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
)

// served is ALTO over windows that the test closes.
type served struct {
	http.Handler
	memory *table.Memory
	groups []fabric.Group
	now    time.Time
	err    error // of reading groups
}

const racks = 3

func newServed(t testing.TB) *served {
	t.Helper()
	s := &served{memory: table.NewMemory(table.MemoryOptions{Epoch: 7, Now: tabletest.Still}), now: time.Unix(1e9, 0)}
	s.groups, _ = tabletest.Names{Racks: racks}.Groups(context.Background())
	s.groups = append(s.groups,
		fabric.Group{ID: fabric.GroupIDOf("10.9.0.0/24"), Name: "10.9.0.0/24", Level: fabric.LevelPrefix},
		fabric.Group{ID: aggregate.UnknownGroup, Name: "unknown"}, fabric.Group{ID: aggregate.OverflowGroup, Name: "overflow"})
	prefixes := map[aggregate.GroupID][]netip.Prefix{}
	for i := range racks {
		id := aggregate.GroupID(tabletest.FirstGroup + i)
		prefixes[id] = []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.%d.0/24", i+1)), netip.MustParsePrefix(fmt.Sprintf("2001:db8:%d::/64", i+1))}
	}
	s.Handler = alto.New(alto.Config{
		Memory: s.memory, Groups: func(context.Context) ([]fabric.Group, error) {
			if s.err != nil {
				return nil, s.err
			}
			return s.groups, nil
		},
		Prefixes: func() map[aggregate.GroupID][]netip.Prefix { return prefixes }, Now: func() time.Time { return s.now },
	})
	return s
}

func (s *served) window(t *testing.T, second int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(second)))
	b := tabletest.Block(rng, 1, time.Unix(1e9+int64(second), 0), racks*racks, csig.MinABW, csig.MinABWRatio, csig.MaxDelay)
	if err := s.memory.WriteBlock(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	s.memory.Publish()
}

func (s *served) ask(method, path, mediaType, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if mediaType != "" {
		r.Header.Set("Content-Type", mediaType)
	}
	r.RemoteAddr = "10.0.2.9:1234"
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// document parses an answer of a type, and fails for unknown fields.
func document[T any](t *testing.T, w *httptest.ResponseRecorder, mediaType string) (v T) {
	t.Helper()
	text := w.Body.String()
	d := json.NewDecoder(w.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil || w.Code != 200 || w.Header().Get("Content-Type") != mediaType {
		t.Fatalf("status %d of type %q: %v: %.500s", w.Code, w.Header().Get("Content-Type"), err, text)
	}
	return v
}

// The documents' fields as named in RFC 7285 and RFC 9439.
type (
	vtag struct {
		Resource string `json:"resource-id"`
		Tag      string `json:"tag"`
	}
	costType struct {
		Mode    string `json:"cost-mode"`
		Metric  string `json:"cost-metric"`
		Context *struct {
			Source string `json:"cost-source"`
		} `json:"cost-context"`
		Description string `json:"description"`
	}
	directory struct { // section 9.2.2
		Meta struct {
			CostTypes map[string]costType `json:"cost-types"`
			Default   string              `json:"default-alto-network-map"`
		} `json:"meta"`
		Resources map[string]struct {
			URI          string `json:"uri"`
			MediaType    string `json:"media-type"`
			Accepts      string `json:"accepts"`
			Capabilities struct {
				CostTypes   []string `json:"cost-type-names"`
				Constraints bool     `json:"cost-constraints"`
				Properties  []string `json:"prop-types"`
			} `json:"capabilities"`
			Uses []string `json:"uses"`
		} `json:"resources"`
	}
	networkMap struct { // section 11.2.1.6
		Meta struct {
			Tag vtag `json:"vtag"`
		} `json:"meta"`
		Map map[string]map[string][]string `json:"network-map"`
	}
	freshness struct { // a member that ALTO does not define
		AsOf     time.Time `json:"as_of"`
		Age      *float64  `json:"age_s"`
		Expected int       `json:"expected_producers"`
		Present  int       `json:"present_producers"`
	}
	costMap struct { // section 11.2.3.6
		Meta struct {
			Freshness freshness `json:"csigscope"`
			Dependent []vtag    `json:"dependent-vtags"`
			CostType  costType  `json:"cost-type"`
		} `json:"meta"`
		Map map[string]map[string]float64 `json:"cost-map"`
	}
	endpointProps struct { // section 11.4.1.6
		Meta struct {
			Dependent []vtag `json:"dependent-vtags"`
		} `json:"meta"`
		Props map[string]map[string]string `json:"endpoint-properties"`
	}
	endpointCosts struct { // section 11.5.1.6
		Meta struct {
			Freshness freshness `json:"csigscope"`
			CostType  costType  `json:"cost-type"`
		} `json:"meta"`
		Map map[string]map[string]float64 `json:"endpoint-cost-map"`
	}
)

const (
	prefix = "application/alto-"
	suffix = "+json"
)

var pidName = regexp.MustCompile(`^[0-9A-Za-z@:_-]{1,64}$`)

// TestDirectory: every listed resource exists, with the type in the directory and the resources
// that it uses; costs have valid names.
func TestDirectory(t *testing.T) {
	s := newServed(t)
	s.window(t, 0)
	d := document[directory](t, s.ask("GET", alto.Directory, "", ""), prefix+"directory"+suffix)
	if r := d.Resources[d.Meta.Default]; r.MediaType != prefix+"networkmap"+suffix || r.Accepts != "" || len(r.Uses) != 0 {
		t.Errorf("default network map %+v", r)
	}
	base, _ := url.Parse(alto.Directory)
	routing, properties := false, false
	used := map[string]bool{}
	for id, r := range d.Resources {
		if !pidName.MatchString(id) {
			t.Errorf("resource %q", id)
		}
		path, err := base.Parse(r.URI)
		if err != nil {
			t.Fatal(err)
		}
		if r.Accepts != "" {
			if w := s.ask("POST", path.Path, r.Accepts, "{}"); w.Code != 400 || !strings.Contains(w.Body.String(), "E_MISSING_FIELD") {
				t.Errorf("%s: %d %s", id, w.Code, w.Body)
			}
			if w := s.ask("GET", path.Path, "", ""); w.Code != 405 {
				t.Errorf("%s by GET: %d", id, w.Code)
			}
		} else if w := s.ask("GET", path.Path, "", ""); w.Code != 200 || w.Header().Get("Content-Type") != r.MediaType {
			t.Errorf("%s: %d of type %s", id, w.Code, w.Header().Get("Content-Type"))
		}
		for _, u := range r.Uses {
			if _, ok := d.Resources[u]; !ok {
				t.Errorf("%s uses %s, which is not listed", id, u)
			}
		}
		for _, name := range r.Capabilities.CostTypes {
			c, ok := d.Meta.CostTypes[name]
			if !ok {
				t.Errorf("%s: cost type %s is not defined", id, name)
			}
			if r.MediaType == prefix+"costmap"+suffix && r.Accepts == "" {
				if len(r.Capabilities.CostTypes) != 1 || used[name] {
					t.Errorf("%s: an unfiltered map is of one cost type, and no other of the same", id)
				}
				used[name] = true
				routing = routing || c.Metric == "routingcost"
			}
		}
		properties = properties || slices.Contains(r.Capabilities.Properties, d.Meta.Default+".pid")
	}
	for name, c := range d.Meta.CostTypes {
		if !regexp.MustCompile(`^[0-9A-Za-z:_.-]{1,32}$`).MatchString(c.Metric) || c.Mode != "numerical" && c.Mode != "ordinal" || c.Description == "" {
			t.Errorf("%s: %+v", name, c)
		}
		if known := slices.Contains([]string{"routingcost", "bw-available", "bw-available:min"}, c.Metric); !known && !strings.HasPrefix(c.Metric, "priv:") {
			t.Errorf("%s: metric %s is of no registry", name, c.Metric)
		}
	}
	if n := len(d.Meta.CostTypes); n != 8 || len(used) != n {
		t.Errorf("%d cost types, want 4 metrics in 2 modes, and maps of %d", n, len(used))
	}
	if !routing || !properties {
		t.Errorf("routingcost %v, property pid %v: both have to be there", routing, properties)
	}
}

// TestNetworkMap: every address is in one PID, by its longest prefix.
func TestNetworkMap(t *testing.T) {
	s := newServed(t)
	first := s.ask("GET", "/alto/networkmap", "", "")
	n := document[networkMap](t, first, prefix+"networkmap"+suffix)
	want := map[string]map[string][]string{
		"rack1":               {"ipv4": {"10.0.1.0/24"}, "ipv6": {"2001:db8:1::/64"}},
		"rack2":               {"ipv4": {"10.0.2.0/24"}, "ipv6": {"2001:db8:2::/64"}},
		"rack3":               {"ipv4": {"10.0.3.0/24"}, "ipv6": {"2001:db8:3::/64"}},
		"10@2e9@2e0@2e0@2f24": {"ipv4": {"10.9.0.0/24"}},
		"unknown":             {"ipv4": {"0.0.0.0/0"}, "ipv6": {"::/0"}},
		"pod1":                {}, "pod2": {},
	}
	if diff := cmp.Diff(want, n.Map); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for pid := range n.Map {
		if !pidName.MatchString(pid) {
			t.Errorf("PID %q", pid)
		}
	}
	if n.Meta.Tag.Resource != "csigscope-network-map" || !regexp.MustCompile(`^[\x21-\x7e]{1,64}$`).MatchString(n.Meta.Tag.Tag) {
		t.Errorf("tag %+v", n.Meta.Tag)
	}
	filtered := document[networkMap](t, s.ask("POST", "/alto/networkmap/filtered", prefix+"networkmapfilter"+suffix,
		`{"pids": ["rack1", "rack1", "nowhere"], "address-types": ["ipv6"], "later": 1}`), prefix+"networkmap"+suffix)
	if diff := cmp.Diff(map[string]map[string][]string{"rack1": {"ipv6": {"2001:db8:1::/64"}}}, filtered.Map); diff != "" || filtered.Meta != n.Meta {
		t.Errorf("filtered (-want +got):\n%s", diff)
	}
	all := document[networkMap](t, s.ask("POST", "/alto/networkmap/filtered", prefix+"networkmapfilter"+suffix, `{"pids": []}`), prefix+"networkmap"+suffix)
	if diff := cmp.Diff(want, all.Map); diff != "" {
		t.Errorf("no PIDs are all (-want +got):\n%s", diff)
	}
	// A changed network has another tag, an unchanged one the same.
	s.groups = append(s.groups, fabric.Group{ID: 99, Name: strings.Repeat("x", 100)})
	s.now = s.now.Add(time.Minute)
	next := document[networkMap](t, s.ask("GET", "/alto/networkmap", "", ""), prefix+"networkmap"+suffix)
	if _, ok := next.Map["@@0000000000000063"]; !ok || next.Meta.Tag.Tag == n.Meta.Tag.Tag {
		t.Errorf("after a change: %v with tag %s", next.Map, next.Meta.Tag.Tag)
	}
}

// TestPrefixesInside: a group that is named after a prefix inside of another group's prefixes, such as one from before there
// was a fabric file, has no addresses.
func TestPrefixesInside(t *testing.T) {
	s := newServed(t)
	old := []fabric.Group{
		{ID: fabric.GroupIDOf("10.0.1.64/26"), Name: "10.0.1.64/26", Level: fabric.LevelPrefix},
		{ID: fabric.GroupIDOf("2001:db8:2:0::/80"), Name: "2001:db8:2:0::/80", Level: fabric.LevelPrefix},
	}
	s.groups = append(old, s.groups...)
	n := document[networkMap](t, s.ask("GET", "/alto/networkmap", "", ""), prefix+"networkmap"+suffix)
	for _, pid := range []string{"10@2e0@2e1@2e64@2f26", "2001:db8:2:0::@2f80"} {
		if list, known := n.Map[pid]; !known || len(list) > 0 {
			t.Errorf("PID %s: %v, %t", pid, list, known)
		}
	}
	if n.Map["10@2e9@2e0@2e0@2f24"] == nil || n.Map["10@2e9@2e0@2e0@2f24"]["ipv4"] == nil {
		t.Errorf("a prefix inside of none has no addresses: %v", n.Map)
	}
	props := document[endpointProps](t, s.ask("POST", "/alto/endpointprop", prefix+"endpointpropparams"+suffix,
		`{"properties": ["csigscope-network-map.pid"], "endpoints": ["ipv4:10.0.1.70", "ipv6:2001:db8:2::1"]}`), prefix+"endpointprop"+suffix)
	want := map[string]map[string]string{"ipv4:10.0.1.70": {"csigscope-network-map.pid": "rack1"}, "ipv6:2001:db8:2::1": {"csigscope-network-map.pid": "rack2"}}
	if diff := cmp.Diff(want, props.Props); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
}

// TestCosts: costs match the cells of the last windows, with the network map's tag.
func TestCosts(t *testing.T) {
	s := newServed(t)
	if c := document[costMap](t, s.ask("GET", "/alto/costmap/num-routingcost", "", ""), prefix+"costmap"+suffix); len(c.Map) != 0 {
		t.Errorf("before the first window: %v", c.Map)
	}
	for second := range 12 {
		s.window(t, second)
	}
	tag := document[networkMap](t, s.ask("GET", "/alto/networkmap", "", ""), prefix+"networkmap"+suffix).Meta.Tag
	sum := table.Merge(s.memory.State().Last(alto.MaxWindows))
	for path, of := range map[string]struct {
		metric string
		signal csig.Signal
		value  func(*aggregate.CellStats) float64
	}{
		"num-routingcost":        {"routingcost", csig.MinABWRatio, func(c *aggregate.CellStats) float64 { return 100 * (1 - c.Mean()/1e6) }},
		"num-bw-available":       {"bw-available", csig.MinABW, func(c *aggregate.CellStats) float64 { return c.Mean() * 1000 / 8 }},
		"num-bw-available-min":   {"bw-available:min", csig.MinABW, func(c *aggregate.CellStats) float64 { return float64(c.Min) * 1000 / 8 }},
		"num-csig-max-hop-delay": {"priv:csig-max-hop-delay", csig.MaxDelay, func(c *aggregate.CellStats) float64 { return c.Mean() / 1000 }},
	} {
		c := document[costMap](t, s.ask("GET", "/alto/costmap/"+path, "", ""), prefix+"costmap"+suffix)
		if len(c.Meta.Dependent) != 1 || c.Meta.Dependent[0] != tag || c.Meta.CostType.Metric != of.metric || c.Meta.CostType.Mode != "numerical" {
			t.Errorf("%s: %+v", path, c.Meta)
		}
		if estimated := c.Meta.CostType.Context != nil && c.Meta.CostType.Context.Source == "estimation"; estimated != (of.metric != "routingcost") {
			t.Errorf("%s: context %+v", path, c.Meta.CostType.Context)
		}
		cells := sum.Cells(of.signal, nil)
		for i := range cells {
			src, dst := fmt.Sprintf("rack%d", cells[i].Src-tabletest.FirstGroup+1), fmt.Sprintf("rack%d", cells[i].Dst-tabletest.FirstGroup+1)
			if got, want := c.Map[src][dst], of.value(&cells[i]); got < want-0.51 || got > want+0.51 || of.signal != csig.MinABW && (got < want-0.006 || got > want+0.006) {
				t.Errorf("%s: %s to %s: %g, want %g", path, src, dst, got, want)
			}
		}
		if len(c.Map) != racks || len(c.Map["rack1"]) != racks {
			t.Errorf("%s: %d sources", path, len(c.Map))
		}
	}
}

const cost = `"cost-type": {"cost-mode": "numerical", "cost-metric": "routingcost"}`

// TestFilteredCosts: a filtered cost map has the requested part of the whole map.
func TestFilteredCosts(t *testing.T) {
	s := newServed(t)
	s.window(t, 0)
	whole := document[costMap](t, s.ask("GET", "/alto/costmap/num-routingcost", "", ""), prefix+"costmap"+suffix)
	limit := whole.Map["rack1"]["rack2"]
	for body, takes := range map[string]func(src, dst string, cost float64) bool{
		`{` + cost + `}`: func(string, string, float64) bool { return true },
		`{` + cost + `, "pids": {"srcs": ["rack1"], "dsts": []}}`:                  func(src, _ string, _ float64) bool { return src == "rack1" },
		`{` + cost + `, "pids": {"srcs": ["rack1", "x"], "dsts": ["rack2"]}}`:      func(src, dst string, _ float64) bool { return src == "rack1" && dst == "rack2" },
		fmt.Sprintf(`{`+cost+`, "constraints": ["ge %g", "le %g"]}`, limit, limit): func(_, _ string, c float64) bool { return c == limit },
		fmt.Sprintf(`{`+cost+`, "constraints": ["gt %g"]}`, limit):                 func(_, _ string, c float64) bool { return c > limit },
	} {
		want := map[string]map[string]float64{}
		for src, row := range whole.Map {
			for dst, c := range row {
				if takes(src, dst, c) {
					if want[src] == nil {
						want[src] = map[string]float64{}
					}
					want[src][dst] = c
				}
			}
		}
		got := document[costMap](t, s.ask("POST", "/alto/costmap/filtered", prefix+"costmapfilter"+suffix, body), prefix+"costmap"+suffix)
		if diff := cmp.Diff(want, got.Map); diff != "" || len(want) == 0 {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
		if diff := cmp.Diff(whole.Meta, got.Meta); diff != "" {
			t.Errorf("%s: meta (-whole +filtered):\n%s", body, diff)
		}
	}
}

// TestEndpoints: endpoints are in the PID of their longest prefix, and have its costs.
func TestEndpoints(t *testing.T) {
	s := newServed(t)
	s.window(t, 0)
	props := document[endpointProps](t, s.ask("POST", "/alto/endpointprop", prefix+"endpointpropparams"+suffix,
		`{"properties": ["csigscope-network-map.pid"], "endpoints": ["ipv4:10.0.1.7", "ipv6:2001:db8:2::1", "ipv4:192.0.2.1"]}`), prefix+"endpointprop"+suffix)
	want := map[string]map[string]string{
		"ipv4:10.0.1.7": {"csigscope-network-map.pid": "rack1"}, "ipv6:2001:db8:2::1": {"csigscope-network-map.pid": "rack2"},
		"ipv4:192.0.2.1": {"csigscope-network-map.pid": "unknown"},
	}
	if diff := cmp.Diff(want, props.Props); diff != "" || len(props.Meta.Dependent) != 1 {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
	whole := document[costMap](t, s.ask("GET", "/alto/costmap/num-routingcost", "", ""), prefix+"costmap"+suffix)
	costs := document[endpointCosts](t, s.ask("POST", "/alto/endpointcost", prefix+"endpointcostparams"+suffix,
		`{`+cost+`, "endpoints": {"srcs": ["ipv4:10.0.1.7"], "dsts": ["ipv4:10.0.3.1", "ipv6:2001:db8:2::1", "ipv4:192.0.2.1", "ipv4:10.0.3.1"]}}`), prefix+"endpointcost"+suffix)
	wantCosts := map[string]map[string]float64{"ipv4:10.0.1.7": {"ipv4:10.0.3.1": whole.Map["rack1"]["rack3"], "ipv6:2001:db8:2::1": whole.Map["rack1"]["rack2"]}}
	if diff := cmp.Diff(wantCosts, costs.Map); diff != "" {
		t.Errorf("costs (-want +got):\n%s", diff)
	}
	own := document[endpointCosts](t, s.ask("POST", "/alto/endpointcost", prefix+"endpointcostparams"+suffix,
		`{`+cost+`, "endpoints": {"dsts": ["ipv4:10.0.1.1"]}}`), prefix+"endpointcost"+suffix)
	if got := own.Map["ipv4:10.0.2.9"]["ipv4:10.0.1.1"]; got != whole.Map["rack2"]["rack1"] {
		t.Errorf("from the client's address: %v", own.Map)
	}
}

// TestErrors: an invalid request gets the error of RFC 7285, section 8.5.
func TestErrors(t *testing.T) {
	s := newServed(t)
	s.window(t, 0)
	filter, params := prefix+"costmapfilter"+suffix, prefix+"endpointcostparams"+suffix
	for _, tc := range []struct {
		path, mediaType, body string
		status                int
		code, field, value    string
	}{
		{"costmap/filtered", filter, `{`, 400, "E_SYNTAX", "", ""},
		{"costmap/filtered", filter, `[]`, 400, "E_INVALID_FIELD_TYPE", "", ""},
		{"costmap/filtered", "text/plain", `{}`, 415, "E_SYNTAX", "", ""},
		{"costmap/filtered", filter, `{"x": "` + strings.Repeat("y", 1<<20) + `"}`, 413, "E_SYNTAX", "", ""},
		{"costmap/filtered", filter, `{}`, 400, "E_MISSING_FIELD", "cost-type", ""},
		{"costmap/filtered", filter, `{"cost-type": {"cost-mode": "numerical"}}`, 400, "E_MISSING_FIELD", "cost-type/cost-metric", ""},
		{"costmap/filtered", filter, `{"cost-type": {"cost-mode": 7, "cost-metric": "routingcost"}}`, 400, "E_INVALID_FIELD_TYPE", "cost-type/cost-mode", ""},
		{"costmap/filtered", filter, `{"cost-type": {"cost-mode": "foo", "cost-metric": "routingcost"}}`, 400, "E_INVALID_FIELD_VALUE", "cost-type/cost-mode", "foo"},
		{"costmap/filtered", filter, `{"cost-type": {"cost-mode": "numerical", "cost-metric": "hopcount"}}`, 400, "E_INVALID_FIELD_VALUE", "cost-type/cost-metric", "hopcount"},
		{"costmap/filtered", filter, `{"cost-type": {"cost-mode": null, "cost-metric": "routingcost"}}`, 400, "E_MISSING_FIELD", "cost-type/cost-mode", ""},
		{"costmap/filtered", filter, `{` + cost + `, "constraints": "ge 7"}`, 400, "E_INVALID_FIELD_TYPE", "constraints", ""},
		{"costmap/filtered", filter, `{` + cost + `, "constraints": ["ge"]}`, 400, "E_INVALID_FIELD_VALUE", "constraints", "ge"},
		{"costmap/filtered", filter, `{` + cost + `} {}`, 400, "E_SYNTAX", "", ""},
		{"costmap/filtered", filter, ``, 400, "E_SYNTAX", "", ""},
		{"costmap/filtered", filter, `{` + cost + `, "pids": {"srcs": [7], "dsts": []}}`, 400, "E_INVALID_FIELD_TYPE", "pids/srcs", ""},
		{"costmap/filtered", filter, `{` + cost + `, "constraints": ["about 7"]}`, 400, "E_INVALID_FIELD_VALUE", "constraints", "about 7"},
		{"costmap/filtered", filter, `{` + cost + `, "pids": {"srcs": []}}`, 400, "E_MISSING_FIELD", "pids/dsts", ""},
		{"endpointcost", params, `{` + cost + `, "endpoints": {}}`, 400, "E_MISSING_FIELD", "endpoints", ""},
		{"endpointcost", params, `{` + cost + `, "endpoints": {"srcs": ["10.0.1.1"]}}`, 400, "E_INVALID_FIELD_VALUE", "endpoints/srcs", "10.0.1.1"},
		{"endpointcost", params, `{` + cost + `, "endpoints": {"dsts": ["ipv4:2001:db8::1"]}}`, 400, "E_INVALID_FIELD_VALUE", "endpoints/dsts", "ipv4:2001:db8::1"},
		{"endpointprop", prefix + "endpointpropparams" + suffix, `{"properties": ["priv:x"], "endpoints": ["ipv4:10.0.1.1"]}`, 400, "E_INVALID_FIELD_VALUE", "properties", "priv:x"},
	} {
		w := s.ask("POST", "/alto/"+tc.path, tc.mediaType, tc.body)
		var e struct {
			Meta struct {
				Code   string `json:"code"`
				Syntax string `json:"syntax-error"`
				Field  string `json:"field"`
				Value  string `json:"value"`
			} `json:"meta"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Header().Get("Content-Type") != prefix+"error"+suffix {
			t.Errorf("%.80s: %v, type %s", tc.body, err, w.Header().Get("Content-Type"))
		}
		if w.Code != tc.status || e.Meta.Code != tc.code || e.Meta.Field != tc.field || e.Meta.Value != tc.value || (e.Meta.Syntax != "") != (tc.code == "E_SYNTAX") {
			t.Errorf("%.80s: %d %+v, want %+v", tc.body, w.Code, e.Meta, tc)
		}
	}
	s.err = errors.New("dial tcp 10.0.0.1: secret")
	s.now = s.now.Add(time.Minute)
	if w := s.ask("GET", "/alto/networkmap", "", ""); w.Code != 200 {
		t.Errorf("the groups that were read last do not stay: %d %s", w.Code, w.Body)
	}
	s = newServed(t)
	s.err = errors.New("dial tcp 10.0.0.1: secret")
	if w := s.ask("GET", "/alto/networkmap", "", ""); w.Code != 503 || strings.Contains(w.Body.String(), "secret") {
		body, _ := io.ReadAll(w.Body)
		t.Errorf("without groups: %d %s", w.Code, body)
	}
}

// FuzzRequests: the answer to any body is a document or a refusal.
func FuzzRequests(f *testing.F) {
	f.Add("costmap/filtered", prefix+"costmapfilter"+suffix, `{`+cost+`, "constraints": ["ge 1e309"], "pids": {"srcs": ["rack1"], "dsts": []}}`)
	f.Add("endpointcost", prefix+"endpointcostparams"+suffix, `{`+cost+`, "endpoints": {"srcs": ["ipv6:::1"], "dsts": ["ipv4:10.0.1.1"]}}`)
	f.Add("endpointprop", prefix+"endpointpropparams"+suffix, `{"properties": ["csigscope-network-map.pid"], "endpoints": ["ipv4:10.0.1.7"]}`)
	f.Add("networkmap/filtered", prefix+"networkmapfilter"+suffix, `{"pids": [null], "address-types": [""]}`)
	s := newServed(f)
	f.Fuzz(func(t *testing.T, path, mediaType, body string) {
		r := httptest.NewRequest("POST", "/alto/", strings.NewReader(body))
		r.URL.Path = "/alto/" + path
		r.Header.Set("Content-Type", mediaType)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code >= 500 || strings.HasSuffix(w.Header().Get("Content-Type"), suffix) && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: %d %.200s", path, w.Code, w.Body)
		}
	})
}
