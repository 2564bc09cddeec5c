package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/client"
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
)

var begin = time.Date(2026, 1, 20, 9, 0, 0, 0, time.UTC)

func window(t *testing.T, m *table.Memory, second int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(second)))
	b := tabletest.Block(rng, 0, begin.Add(time.Duration(second)*time.Second), 16, csig.MinABWRatio)
	if err := m.WriteBlock(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	m.Publish()
}

func serve(t *testing.T) (*table.Memory, *httptest.Server, *client.Client) {
	t.Helper()
	m := table.NewMemory(table.MemoryOptions{})
	past := querytest.Fabric(4, 2)
	past.FlowRows, past.FindingRows = querytest.Flows(past, 20), querytest.Findings(past, 20)
	a, err := api.New(api.Config{Memory: m, Names: tabletest.Names{Racks: 4}, Reader: past})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	c, err := client.New(server.URL+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return m, server, c
}

func TestQuestions(t *testing.T) {
	m, _, c := serve(t)
	window(t, m, 0)
	whole, err := c.AllCells(t.Context(), nil)
	if err != nil || len(whole.Values) != 16 {
		t.Fatalf("%d cells, %v", len(whole.Values), err)
	}
	pages, err := c.AllCells(t.Context(), url.Values{"limit": {"5"}})
	if diff := cmp.Diff(whole, pages); err != nil || diff != "" {
		t.Errorf("pages: %v (-whole +pages):\n%s", err, diff)
	}
	p, err := c.Path(t.Context(), url.Values{"src": {"rack1"}, "dst": {"rack2"}})
	if err != nil || p.Cell.Dst != "rack2" || p.Room == nil {
		t.Errorf("path %+v, %v", p, err)
	}
	if h, err := c.Health(t.Context()); err != nil || h.Windows != 1 {
		t.Errorf("health %+v, %v", h, err)
	}
	if f, err := c.Fabric(t.Context()); err != nil || len(f.Groups) != 6 {
		t.Errorf("fabric %+v, %v", f, err)
	}
	if l, err := c.Locations(t.Context(), nil); err != nil || len(l.Values) == 0 {
		t.Errorf("locations %+v, %v", l, err)
	}
	if l, err := c.Flows(t.Context(), url.Values{"signal": {"max_delay"}, "limit": {"5"}}); err != nil || len(l.Values) != 5 || l.Total != 20 {
		t.Errorf("flows %+v, %v", l, err)
	}
	if l, err := c.Findings(t.Context(), url.Values{"severity": {"error"}}); err != nil || len(l.Values) == 0 {
		t.Errorf("findings %+v, %v", l, err)
	}
	if l, err := c.Timeline(t.Context(), nil); err != nil || len(l.Values) != 1 {
		t.Errorf("timeline %+v, %v", l, err)
	}
	if l, err := c.Matrix(t.Context(), nil); err != nil || len(l.Groups) != 4 {
		t.Errorf("matrix %+v, %v", l, err)
	}
	var refused *client.Error
	if _, err := c.Cells(t.Context(), url.Values{"src": {"nobody"}}); !errors.As(err, &refused) || refused.Status != 422 || len(refused.Errors) != 1 {
		t.Errorf("refused with %v", err)
	}
	if _, err := c.Cells(t.Context(), url.Values{"after": {"1"}}); !errors.Is(err, client.ErrUnchanged) {
		t.Errorf("nothing new: %v", err)
	}
	for _, server := range []string{"", "127.0.0.1:9465", "ftp://host", "http://"} {
		if _, err := client.New(server, nil); err == nil {
			t.Errorf("server %q is taken", server)
		}
	}
}

// TestWatchResumes: a stream that breaks off goes on where it was.
func TestWatchResumes(t *testing.T) {
	m, server, c := serve(t)
	window(t, m, 0)
	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan *client.Event, 16)
	var watching sync.WaitGroup
	watching.Go(func() {
		err := c.Watch(ctx, url.Values{"src": {"rack1"}}, func(e *client.Event) error {
			events <- e
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("watch ended with %v", err)
		}
	})
	if e := <-events; e.Snapshot == nil || len(e.Snapshot.Values) != 4 {
		t.Errorf("first event %+v", e)
	}
	if e := <-events; e.Name != model.EventSynced {
		t.Errorf("second event %+v", e)
	}
	for second := 1; second <= 3; second++ {
		if second == 2 {
			server.CloseClientConnections()
		}
		window(t, m, second)
		e := <-events
		if e.Window == nil || !e.Window.Start.Equal(begin.Add(time.Duration(second)*time.Second)) {
			t.Errorf("event %+v, want window %d", e, second)
		}
	}
	cancel()
	watching.Wait()
	stop := errors.New("enough")
	if err := c.Watch(t.Context(), nil, func(*client.Event) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("stopped with %v", err)
	}
	var refused *client.Error
	if err := c.Watch(t.Context(), url.Values{"level": {"x"}}, func(*client.Event) error { return nil }); !errors.As(err, &refused) {
		t.Errorf("refused with %v", err)
	}
}

// TestExport: a table comes with how it ended.
func TestExport(t *testing.T) {
	m, _, c := serve(t)
	window(t, m, 0)
	var out bytes.Buffer
	end, err := c.Export(t.Context(), client.TableCells, url.Values{"src": {"rack1"}}, &out)
	if err != nil || *end != (client.Exported{Rows: 4, Complete: true}) || bytes.Count(out.Bytes(), []byte("\n")) != 5 {
		t.Errorf("%+v, %v: %s", end, err, &out)
	}
	for table, rows := range map[string]int{client.TableFlows: 20, client.TableFindings: 20} {
		out.Reset()
		parameters := url.Values{"format": {"parquet"}}
		if table == client.TableFlows {
			parameters.Set("signal", "max_delay")
		}
		if end, err := c.Export(t.Context(), table, parameters, &out); err != nil || end.Rows != rows || !bytes.HasPrefix(out.Bytes(), []byte("PAR1")) {
			t.Errorf("%s: %+v, %v", table, end, err)
		}
	}
	var refused *client.Error
	if _, err := c.Export(t.Context(), client.TableCells, url.Values{"format": {"xlsx"}}, &out); !errors.As(err, &refused) {
		t.Errorf("refused with %v", err)
	}
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, strings.Repeat("x", 1<<16))
		panic(http.ErrAbortHandler)
	}))
	defer cut.Close()
	if c, err = client.New(cut.URL, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Export(t.Context(), client.TableCells, nil, &out); err == nil || !strings.Contains(err.Error(), "broke off") {
		t.Errorf("cut off: %v", err)
	}
}
