package api_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"

	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
)

// TestCallsAccess: access control also covers calls and tables, and lets streams and trailers
// pass.
func TestCallsAccess(t *testing.T) {
	s := newCalled(t, nil)
	clients := filepath.Join(t.TempDir(), "clients")
	edgetest.WriteTokens(t, clients, edgetest.TokenLine("te", "read", "secret", ""))
	server, err := edge.New(edge.Config{
		Auth: &edge.Auth{Clients: clients}, Access: &edge.Access{Settings: edge.Settings{Limits: edge.Limits{Watchers: 1}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	guarded := server.Guard(s)
	if _, err := caller(t, guarded).Cells(t.Context(), connect.NewRequest(&wire.CellsRequest{})); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("without a token: %v", err)
	}
	admitted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer secret")
		guarded.ServeHTTP(w, r)
	})
	for name, option := range map[string]connect.ClientOption{"gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb(), "Connect": connect.WithProtoJSON()} {
		c := caller(t, admitted, option)
		if r, err := c.Cells(t.Context(), connect.NewRequest(&wire.CellsRequest{})); err != nil || len(r.Msg.Cells) != 16 {
			t.Errorf("%s: %v", name, err)
		}
		stream := watch(t, c, &wire.WatchRequest{})
		for !stream.Receive() && connect.CodeOf(stream.Err()) == connect.CodeResourceExhausted { // until the previous one has ended
			stream = watch(t, c, &wire.WatchRequest{})
		}
		if stream.Msg().GetSnapshot() == nil || !stream.Receive() {
			t.Errorf("%s: watch: %v", name, stream.Err())
		}
		if more := watch(t, c, &wire.WatchRequest{}); more.Receive() || connect.CodeOf(more.Err()) != connect.CodeResourceExhausted {
			t.Errorf("%s: a watch too many: %v", name, more.Err())
		}
		stream.Close()
	}
	listening := httptest.NewServer(admitted)
	defer listening.Close()
	if rows, response := exportOf(t, listening.URL, "export?src=rack1", tabular.Parquet); len(rows) != 5 || response.Trailer.Get("Csigscope-Complete") != "true" {
		t.Errorf("table of %d rows, trailers %v", len(rows)-1, response.Trailer)
	}
}
