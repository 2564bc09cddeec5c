package credential

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestNewClient: the token in the file is shown, and to nobody that a server redirects to.
func TestNewClient(t *testing.T) {
	var shown []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = append(shown, r.URL.Path+" "+r.Header.Get("Authorization"))
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "token")
	for text, good := range map[string]bool{"secret\n": true, "": false, " \n": false, "two words": false} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := NewClient(&http.Transport{}, TLSFiles{}, file, time.Now, slog.New(slog.DiscardHandler))
		if (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil {
			continue
		}
		r, err := c.Get(server.URL + "/asked")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if len(shown) != 1 || shown[0] != "/asked Bearer secret" || r.StatusCode != http.StatusFound {
			t.Errorf("status %d, shown %q", r.StatusCode, shown)
		}
		c.CloseIdleConnections()
	}
	if _, err := NewClient(&http.Transport{}, TLSFiles{}, filepath.Join(t.TempDir(), "absent"), time.Now, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a file that is not there is no error")
	}
	if _, err := NewClient(&http.Transport{}, TLSFiles{Cert: file}, "", time.Now, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a certificate without its key is no error")
	}
}
