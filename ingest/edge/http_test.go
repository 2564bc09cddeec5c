package edge

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"
)

// TestCalls: a refused call gets an error of its protocol, with a code, a text and, at a limit, the time to
// wait.
func TestCalls(t *testing.T) {
	f := newFixture(t, Settings{Limits: Limits{Requests: 1, Burst: 4}}, hello())
	server := httptest.NewServer(f)
	defer server.Close()
	for name, protocol := range map[string][]connect.ClientOption{
		"Connect": nil, "Connect, JSON": {connect.WithProtoJSON()}, "gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()},
	} {
		call := func(path, token, site string, streams bool) error {
			t.Helper()
			c := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+path, protocol...)
			r := connect.NewRequest(&emptypb.Empty{})
			r.Header().Set("Authorization", "Bearer "+token)
			r.Header().Set("Sec-Fetch-Site", site)
			if !streams {
				_, err := c.CallUnary(t.Context(), r)
				return err
			}
			s, err := c.CallServerStream(t.Context(), r)
			if err != nil {
				return err
			}
			defer s.Close()
			s.Receive()
			return s.Err()
		}
		f.now = f.now.Add(1e12)
		for _, streams := range []bool{false, true} {
			for _, want := range []struct {
				path, token, site string
				code              connect.Code
				detail            string
			}{
				{"/s/m?token=hunter2", "te", "", connect.CodeInvalidArgument, "credentials do not belong in URLs"},
				{"/s/m", "hunter2", "", connect.CodeUnauthenticated, "token"},
				{"/s/m", "te", "cross-site", connect.CodePermissionDenied, "another web site"},
				{"/api/v1/admin/m", "te", "", connect.CodePermissionDenied, "role admin"},
			} {
				err := call(want.path, want.token, want.site, streams)
				if connect.CodeOf(err) != want.code || !strings.Contains(err.Error(), want.detail) {
					t.Errorf("%s, streams %t: %v, want %v: %s", name, streams, err, want.code, want.detail)
				}
			}
		}
		for range 4 {
			f.ask(http.MethodGet, "/api/v1/cells", "192.0.2.1", "te")
		}
		for _, streams := range []bool{false, true} {
			err := call("/s/m", "te", "", streams)
			limited, _ := errors.AsType[*connect.Error](err)
			if connect.CodeOf(err) != connect.CodeResourceExhausted || limited.Meta().Get("Retry-After") != "1" {
				t.Errorf("%s, streams %t: %v, want a limit", name, streams, err)
			}
		}
	}
	if codes := f.Stats().Endpoints[1].Codes; codes[http.StatusTooManyRequests] != 8 {
		t.Errorf("counted %v, want 8 refusals at a limit", codes)
	}
}
