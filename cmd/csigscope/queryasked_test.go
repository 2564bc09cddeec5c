package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/edge"
)

// askedServer serves windows in memory, and history.
func askedServer(t *testing.T) string {
	t.Helper()
	memory := table.NewMemory(table.MemoryOptions{Now: tabletest.Still})
	for second := range 3 {
		b := tabletest.Block(rand.New(rand.NewPCG(1, 2)), 1, querytest.Start.Add(time.Duration(second)*time.Second), 16, csig.MinABWRatio, csig.MaxDelay)
		if err := memory.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		memory.Publish()
	}
	past := querytest.Fabric(4, 10)
	past.FlowRows, past.FindingRows = querytest.Flows(past, 30), querytest.Findings(past, 30)
	a, err := api.New(api.Config{Memory: memory, Names: wiredNames{tabletest.Names{Racks: 4}}, Reader: past, ExportRows: 50})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return server.URL
}

// wiredNames are names of a fabric of two leaves and a spine.
type wiredNames struct{ tabletest.Names }

// Topology implements query.Wired.
func (wiredNames) Topology(context.Context) (*fabric.Fabric, error) {
	return fabric.Restore(`group "rack1" rack parent ""
prefix 10.0.1.0/24 "rack1"
group "rack2" rack parent ""
prefix 10.0.2.0/24 "rack2"
device leaf1 stage leaf id 1
port leaf1:up1 id 1 up peer "spine1" 100000000 kbit/s
port leaf1:down1 id 2 down peer "h1" 100000000 kbit/s
device leaf2 stage leaf id 2
port leaf2:up1 id 1 up peer "spine1" 100000000 kbit/s
port leaf2:down1 id 2 down peer "h2" 100000000 kbit/s
device spine1 stage spine id 3
port spine1:down1 id 1 down peer "leaf1" 100000000 kbit/s
port spine1:down2 id 2 down peer "leaf2" 100000000 kbit/s
host h1 10.0.1.1
host h2 10.0.2.1
`)
}

func runCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newRoot()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(t.Output())
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// TestAskServer: the JSON of questions is the server's, and CSV has the columns of exported
// tables.
func TestAskServer(t *testing.T) {
	server := askedServer(t)
	const past = "from=2026-01-20T09:00:00Z to=2026-01-20T09:00:10Z"
	for args, rows := range map[string]int{
		"verdict": 32, "verdict top=1 windows=2": 16, "verdict " + past: 24,
		"cells": 16, "cells src=rack1 windows=3": 4, "cells src=rack1,rack3": 8, "cells state=congested,too_few": 16, "cells " + past: 12,
		"locations top=3": 3, "locations level=device " + past: 8,
		"timeline src=rack1 top=2": 6, "timeline src=rack1 dst=rack2 step=5s " + past: 6,
		"flows signal=max_delay limit=7": 7, "flows signal=max_delay src=rack1 window=1s " + past: 27,
		"findings severity=error,warning limit=1000": 20, "findings kind=rogue-insertion device=leaf1 " + past: 3,
		"links top=3": 11, "links device=leaf1 state=congested": 16, "links top=5 " + past: 11, "topology": 6, "topology src=rack1 dst=rack2": 1,
		"path src=rack1 dst=rack2": 1, "path src=rack1 dst=rack2 signal=min_abw " + past: 1,
	} {
		name, given, _ := strings.Cut(args, " ")
		values, flags := url.Values{}, []string{"query", name, "--server", server}
		for parameter := range strings.FieldsSeq(given) {
			key, list, _ := strings.Cut(parameter, "=")
			values[key] = strings.Split(list, ",")
			flags = append(flags, "--"+strings.Replace(key, "limit", "top", 1), list)
		}
		if name == "cells" || name == "locations" || name == "flows" {
			flags = append(flags, "--sort", "observations")
		}
		text, err := runCommand(t, append(flags, "-o", "json")...)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		r, err := http.Get(server + "/api/v1/" + name + "?" + values.Encode())
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		sorted := cmpopts.SortSlices(func(a, b any) bool { return fmt.Sprint(a) < fmt.Sprint(b) })
		changes := cmpopts.IgnoreMapEntries(func(k string, _ any) bool { return k == "age_s" || k == "as_of" || k == "next_cursor" })
		if diff := cmp.Diff(decodeJSON[any](t, string(want)), decodeJSON[any](t, text), sorted, changes); diff != "" {
			t.Errorf("%s (-API +query):\n%s", args, diff)
		}
		if text, err = runCommand(t, append(flags, "-o", "csv")...); err != nil {
			t.Errorf("%s as CSV: %v", args, err)
		}
		lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
		if err != nil || len(lines) != rows+1 {
			t.Fatalf("%s as CSV: %d lines, %v", args, len(lines), err)
		}
		for _, format := range []string{"table", "wide", "ndjson"} {
			if text, err = runCommand(t, append(flags, "-o", format)...); err != nil || strings.Count(text, "\n") < 1 {
				t.Errorf("%s as %s: %v, %s", args, format, err, text)
			}
		}
		if name != "cells" && name != "flows" && name != "findings" {
			continue
		}
		export := []string{"query", "export", "--table", name, "--server", server}
		if signal := values.Get("signal"); signal != "" {
			export = append(export, "--signal", signal)
		}
		text, err = runCommand(t, export...)
		if header, _, _ := strings.Cut(text, "\n"); err != nil || header != strings.Join(lines[0], ",") {
			t.Errorf("%s: columns %s, exported ones %s, %v", args, lines[0], header, err)
		}
	}
	for args, says := range map[string]string{
		"findings --store none":                      "leave out one of them",
		"findings --severity high":                   "severity",
		"cells --sort nothing":                       "no column",
		"cells --since 1m --to 2026-01-20T09:00:00Z": "neither --from nor --to",
		"cells --since 0s":                           "above 0",
		"cells --since -1m":                          "expected a time with a unit",
		"path --src nobody --dst rack1":              "no such group",
		"path --src rack1":                           "dst",
		"topology --src rack1":                       "go together",
		"flows --windows 2 --location nowhere":       "no such location",
		"flows --windows 2 --link leaf9:up9":         "no such",
		"flows --windows 0":                          "windows",
		"export --table x":                           "expected cells, windows",
		"export --step 1s":                           "table=windows",
		"export --table flows --level device":        "--level: leave it out with --table flows",
		"cells --src rack1,nobody":                   `no such group "nobody"`,
		"path --src rack1 --src rack2 --dst rack3":   "given 2 times",
		"cells --windows 2 --since 1m":               "--windows: is for windows in memory",
	} {
		if _, err := runCommand(t, append(append([]string{"query"}, strings.Fields(args)...), "--server", server)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", args, err, says)
		}
	}
}

// TestFlagsMatter: each flag that chooses rows changes a question, or is refused.
func TestFlagsMatter(t *testing.T) {
	var got strings.Builder
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(&got, "%s %q\n", r.URL, body)
		edge.WriteProblem(w, http.StatusUnprocessableEntity, "enough")
	}))
	defer server.Close()
	ask := func(args []string, more ...string) string {
		got.Reset()
		_, err := runCommand(t, append(args, more...)...)
		return fmt.Sprint(got.String(), err)
	}
	values := map[string]string{
		"signal": "max_delay", "level": "device", "state": "brief", "windows": "7", "top": "7", "step": "7s", "window": "1m", "resolution": "100ms", "severity": "error", "table": "flows",
	}
	// These choose a server, a store, a range or the output.
	others := "store server token-file server-ca client-cert client-key from to since count sort out output config"
	for _, cmd := range newQueryCommand().Commands() {
		if cmd.Flags().Lookup("server") == nil {
			continue
		}
		args := []string{"query", cmd.Name(), "--server", server.URL}
		if cmd.Flags().Lookup("from") != nil {
			args = append(args, "--from", "2026-01-20T09:00:00Z", "--to", "2026-01-20T09:00:10Z")
		}
		if cmd.Name() == "path" {
			args = append(args, "--src", "rack1", "--dst", "rack2")
		}
		without := ask(args)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if slices.Contains(strings.Fields(others), f.Name) {
				return
			}
			value, ok := values[f.Name]
			if !ok {
				value = "x"
			}
			if with := ask(args, "--"+f.Name, value); with == without {
				t.Errorf("%s --%s asks the same: %s", cmd.Name(), f.Name, with)
			}
		})
	}
}

// TestWorstFirst: the worst cells come first, unless --sort names a column.
func TestWorstFirst(t *testing.T) {
	server := "--server=" + askedServer(t)
	for sort, before := range map[string]func(x, y *sortedCell) bool{
		"worst": func(x, y *sortedCell) bool {
			return x.State == "congested" && y.State != "congested" || x.State == y.State && x.Heavy >= y.Heavy
		},
		"mean":         func(x, y *sortedCell) bool { return x.Mean.Ratio <= y.Mean.Ratio },
		"-mean_ratio":  func(x, y *sortedCell) bool { return x.Mean.Ratio >= y.Mean.Ratio },
		"-src":         func(x, y *sortedCell) bool { return x.Src >= y.Src },
		"observations": func(x, y *sortedCell) bool { return x.Observations <= y.Observations },
	} {
		text, err := runCommand(t, "query", "cells", server, "-o", "json", "--sort", sort)
		if err != nil {
			t.Fatal(err)
		}
		list := decodeJSON[struct{ Cells []sortedCell }](t, text).Cells
		for i := range list[1:] {
			if !before(&list[i], &list[i+1]) {
				t.Errorf("%s: %+v comes before %+v", sort, list[i], list[i+1])
			}
		}
	}
}

type sortedCell struct {
	Src, State   string
	Observations uint64
	Heavy        float64 `json:"heavy_ratio"`
	Mean         struct{ Ratio float64 }
}

// TestHistoryAlone: for a server without memory, questions use its stored range.
func TestHistoryAlone(t *testing.T) {
	past := querytest.Fabric(4, 10)
	a, err := api.New(api.Config{Reader: past})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(a)
	defer server.Close()
	for _, args := range []string{"cells", "locations", "timeline", "path --src rack1 --dst rack2", "windows", "export", "export --table windows", "findings", "flows"} {
		all, err := runCommand(t, append(strings.Fields("query "+args), "--server", server.URL)...)
		if err != nil {
			t.Errorf("%s: %v", args, err)
		}
		if bounded, err := runCommand(t, append(strings.Fields("query "+args), "--server", server.URL, "--from", "2026-01-20T09:00:00Z", "--to", "2026-01-20T09:00:10Z")...); err != nil || !strings.HasPrefix(args, "path") && bounded != all {
			t.Errorf("%s: %v, %s\nwithout a range\n%s", args, err, bounded, all)
		}
	}
}

// TestQueryExport: tables go to standard output or a file; a truncated table is an error.
func TestQueryExport(t *testing.T) {
	server := "--server=" + askedServer(t)
	text, err := runCommand(t, "query", "export", server, "--src", "rack1")
	if err != nil || strings.Count(text, "\n") != 5 || !strings.HasPrefix(text, "from,to,signal,") {
		t.Errorf("%v: %s", err, text)
	}
	path := filepath.Join(t.TempDir(), "table")
	for args, magic := range map[string]string{
		"--table windows --windows 2 -o parquet":    "PAR1",
		"--table flows --signal max_delay -o arrow": "\xff\xff\xff\xff",
		"--table findings":                          "kind,id,severity",
	} {
		_, err := runCommand(t, append([]string{"query", "export", server, "--out", path}, strings.Fields(args)...)...)
		body, readErr := os.ReadFile(path)
		if err != nil || readErr != nil || !strings.HasPrefix(string(body), magic) {
			t.Errorf("%s: %v, %v: %.20q", args, err, readErr, body)
		}
	}
	before, _ := os.ReadFile(path)
	if _, err := runCommand(t, "query", "export", server, "--out", path, "--signal", "max_nothing"); err == nil {
		t.Error("a refused question: no error")
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("a refused question has changed the file")
	}
	_, err = runCommand(t, "query", "export", server, "--out", path, "--table", "windows", "--from=2026-01-20T09:00:00Z", "--to=2026-01-20T09:00:10Z", "--step=1s")
	if body, _ := os.ReadFile(path); err == nil || !strings.Contains(err.Error(), "50 rows, cut off by the limit on rows") || bytes.Count(body, []byte("\n")) != 51 {
		t.Errorf("cut off: %v, %d lines", err, bytes.Count(body, []byte("\n")))
	}
}
