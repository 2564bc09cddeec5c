package main

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/remote"
)

// noStore is the store of a collector that no exporter sends to.
type noStore struct {
	remote.Sink
	remote.Directory
}

func (noStore) NotifyContested(func(refused, held fabric.Name)) {}

// TestRefusedReload: a file whose exporters do not go with settings that need a restart changes nothing, and the
// error names the settings.
func TestRefusedReload(t *testing.T) {
	dir := t.TempDir()
	read := func(text string) *network {
		t.Helper()
		n, err := openNetwork(writeFile(t, filepath.Join(dir, "c.yaml"), text), "")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	start := read(`collect: {ingest: {listen: "127.0.0.1:4319", anonymous: local, exporters: [{name: local}]}}`)
	ingest := &start.Config.Collect.Ingest
	c := &collector{flags: &collectFlags{}}
	c.network, c.fixed = start, collectSettings
	var err error
	if c.started, err = collectSettings(start); err != nil {
		t.Fatal(err)
	}
	if c.server, err = remote.NewServer(remote.ServerConfig{Auth: ingest.Auth(), Admission: c.admission(start)}, noStore{}, noStore{}); err != nil {
		t.Fatal(err)
	}
	auth := start.Config.API.Auth()
	server, err := edge.New(edge.Config{Auth: &auth, Access: &edge.Access{Settings: start.Config.API.Settings()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Listen(t.Context(), "127.0.0.1:0", "--api-listen"); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error)
	go func() {
		served <- server.Serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	}()
	defer func() {
		end()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	c.feed = &liveFeed{server: server}

	// It has no names: their use would panic.
	next := read(`{api: {limits: {requests: 1}}, decode: {inner_tags: true}, collect: {ingest: {listen: "127.0.0.1:4319", anonymous: edge, exporters: [{name: edge}]}}}`)
	const want = "changed settings need a restart: collect.ingest.anonymous: the file does not go with the earlier ones: configure collector: anonymous: local is not among"
	if err := c.takeOver(next); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	for range 5 {
		answer, err := http.Get(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusNoContent {
			t.Errorf("%s: a limit of the refused file is in force", answer.Status)
		}
	}
	if st := c.server.Stats(); len(st.Exporters) != 1 || st.Exporters[0].Name != "local" {
		t.Errorf("%+v: want the exporter of the start", st.Exporters)
	}
}
