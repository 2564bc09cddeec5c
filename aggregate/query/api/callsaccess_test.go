package api_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"

	"github.com/csigscope/csigscope/aggregate/query/access"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/query/wire"
)

// token lets in who has it.
type token string

func (t token) Identify(r *http.Request) (access.Peer, error) {
	if r.Header.Get("Authorization") != "Bearer "+string(t) {
		return access.Peer{}, errors.New("no valid token")
	}
	return access.Peer{Name: "te", Role: access.Read, How: "token"}, nil
}

// TestCallsAccess: who may ask decides over calls and tables as well, and lets streams and
// trailers pass.
func TestCallsAccess(t *testing.T) {
	s := newCalled(t, nil)
	control, err := access.New(access.Config{Who: token("secret"), Settings: access.Settings{Limits: access.Limits{Watchers: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	guarded := control.Guard(s)
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
		for !stream.Receive() && connect.CodeOf(stream.Err()) == connect.CodeResourceExhausted { // until the one before has ended
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
	server := httptest.NewServer(admitted)
	defer server.Close()
	if rows, response := exportOf(t, server.URL, "export?src=rack1", tabular.Parquet); len(rows) != 5 || response.Trailer.Get("Csigscope-Complete") != "true" {
		t.Errorf("table of %d rows, trailers %v", len(rows)-1, response.Trailer)
	}
}
