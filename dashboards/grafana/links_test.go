package grafana_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/csigscope/csigscope/dashboards/grafana"
	"github.com/csigscope/csigscope/dashboards/grafana/grafanatest"
)

// Names with characters that are special in addresses, or look like scripts.
const (
	oddSource   = `R&D #1 +2 100% a/b\c ü`
	oddDest     = `a=b&var-src=x;%26%2526 'q' "w" <i>&#38;?`
	oddLocation = `leaf#1+&%41:up/1 javascript:`
)

// linked lists the panels with data links, a possible result of their queries, and the choices that
// one of the links must make.
var linked = map[string]struct {
	frame  *data.Frame
	choose map[string]string
}{
	"Mean available bandwidth, of capacity": {matrixFrame(0.5), map[string]string{"src": oddSource, "dst": oddDest}},
	"Mode of the bottleneck (${signal:text})": {
		matrixFrame(oddLocation),
		map[string]string{"src": oddSource, "dst": oddDest},
	},
	"Mode of the bottleneck, by cell": {data.NewFrame("", data.NewField("time", nil, twice(recordsStart)), data.NewField("src", nil, twice(oddSource)),
		data.NewField("dst", nil, twice(oddDest)), data.NewField("mode", nil, twice(oddLocation))), map[string]string{"src": oddSource, "dst": oddDest}},
	"Cells that suffer":    {data.NewFrame("", data.NewField("src", nil, twice(oddSource)), data.NewField("dst", nil, twice(oddDest))), map[string]string{"src": oddSource, "dst": oddDest}},
	"Top locations":        {places(), map[string]string{"location": oddLocation}},
	"Path of $src to $dst": {places(), map[string]string{"src": oddDest, "dst": oddSource, "location": oddLocation}},
	"Flows of $src to $dst": {
		places(),
		map[string]string{"src": oddDest, "dst": oddSource, "location": oddLocation},
	},
	"Worst flows of $group": {places(), map[string]string{"location": oddLocation}},
}

func twice[T any](v T) []T { return []T{v, v} }

func matrixFrame[T any](value T) *data.Frame {
	return data.NewFrame("", data.NewField("src", nil, twice(oddSource)), data.NewField("dst", nil, []string{"plain", oddDest}), data.NewField("value", nil, twice(value)))
}

func places() *data.Frame {
	return data.NewFrame("", data.NewField("source", nil, []string{"10.0.0.1"}), data.NewField("location", nil, []string{oddLocation}), data.NewField("heavy", nil, []uint64{3}))
}

// TestLinksKeepNames checks that a link selects exactly the group or location, whatever characters
// its name has, after Grafana's processing of the address.
func TestLinksKeepNames(t *testing.T) {
	v := &grafanatest.Viewer{From: recordsStart, To: recordsStart.Add(1), Choices: map[string]grafanatest.Choice{
		"signal": {Text: "available bandwidth of capacity", Value: "1"}, "level": {Value: "0"}, "resolution": {Text: "1s", Value: "1000000000"}, "datasource": {Value: "a&b#c%"},
		"src": {Value: oddDest}, "dst": {Value: oddSource}, "group": {Value: oddSource}, "onset": {Value: "0.35"}, "clear": {Value: "0.3"},
	}}
	var asked []grafanatest.Asked
	var titles []string
	o := grafana.DefaultOptions()
	o.Tables = true // in the plugin, a click does not use Grafana's links
	for _, b := range decoded(t, o) {
		for _, p := range b["panels"].([]any) {
			title := p.(map[string]any)["title"].(string)
			text, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			if l, ok := linked[title]; ok {
				asked, titles = append(asked, grafanatest.Asked{Panel: text, Frames: []*data.Frame{l.frame}}), append(titles, title)
			} else if strings.Contains(string(text), `"links"`) && !strings.HasPrefix(title, "Mean ") && title != "Known" && !strings.HasPrefix(title, "Congestion") && title != "Alerts" {
				t.Errorf("the links of %q are not tested", title)
			}
		}
	}
	if len(asked) != len(linked) {
		t.Errorf("%d panels of %d: %q", len(asked), len(linked), titles)
	}
	for i, panel := range v.Draw(t, asked) {
		var last grafanatest.DrawnLink
		for _, f := range panel.Frames[0].Fields {
			for _, value := range f.Values {
				if len(value.Links) > 0 {
					last = value.Links[0]
				}
			}
		}
		for name, want := range linked[titles[i]].choose {
			if got := last.Query["var-"+name]; got != want {
				t.Errorf("%s: %s chooses %s %q, want %q", titles[i], last.Href, name, got, want)
			}
		}
		if location, set := last.Query["var-location"]; !set || location != linked[titles[i]].choose["location"] {
			t.Errorf("%s: %s keeps the location of an earlier click", titles[i], last.Href)
		}
		if last.Path != "/d/"+grafana.CellsUID || last.Query["var-datasource"] != "a&b#c%" || last.Query["from"] != "1767614400000" {
			t.Errorf("%s: %s", titles[i], last.Href)
		}
		// The board of a job has no thresholds, so a link from it leaves those of the cells board.
		if job := titles[i] == "Worst flows of $group"; job == (last.Query["var-onset"] == "0.35") || job == (last.Query["var-clear"] == "0.3") || strings.Contains(last.Href, "${") {
			t.Errorf("%s: %s changes the thresholds", titles[i], last.Href)
		}
		if names := slices.Sorted(maps.Keys(last.Query)); slices.ContainsFunc(names, func(n string) bool {
			return n != "from" && n != "to" && n != "viewPanel" && !strings.HasPrefix(n, "var-")
		}) {
			t.Errorf("%s: a name became parameters: %q", titles[i], names)
		}
	}
}
