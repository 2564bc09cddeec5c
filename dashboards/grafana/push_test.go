package grafana_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/dashboards/grafana"
)

// saved is a dashboard in the fake.
type saved struct {
	version         int
	message, folder string
	provisioned     bool
	board           map[string]any
}

// fake responds as Grafana's API documentation says.
type fake struct {
	t       *testing.T
	folders map[string]bool
	boards  map[string]*saved
	editor  bool // the token may not query a missing folder, as in Grafana 12
	broken  map[string]int
	asked   []string
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.asked = append(f.asked, r.Method+" "+r.URL.Path)
	say := func(status int, v any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	if status := f.broken[r.Method+" "+r.URL.Path]; status != 0 {
		say(status, map[string]any{"message": fmt.Sprintf("broken %d", status), "status": "broken"})
		return
	}
	if r.Header.Get("Authorization") != "Bearer secret" {
		say(401, map[string]any{"message": "Invalid API key"})
		return
	}
	var in struct {
		UID, FolderUID, Message string
		Overwrite               bool
		Dashboard               map[string]any
	}
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.Header.Get("Content-Type") != "application/json" {
			say(400, map[string]any{"message": "bad request data"})
			return
		}
	}
	uid, version, versions := strings.Cut(strings.TrimPrefix(r.URL.Path, "/api/dashboards/uid/"), "/versions/")
	b := f.boards[uid]
	switch path := r.Method + " " + r.URL.Path; {
	case path == "GET /api/folders/csigscope" && f.folders["csigscope"]:
		say(200, map[string]any{"uid": "csigscope"})
	case path == "GET /api/folders/csigscope" && f.editor:
		say(403, map[string]any{"message": "You'll need additional permissions to perform this action"})
	case path == "POST /api/folders":
		f.folders[in.UID] = true
		say(200, map[string]any{"uid": in.UID})
	case path == "POST /api/dashboards/db":
		f.save(in.Dashboard, in.FolderUID, in.Message, in.Overwrite, say)
	case b == nil:
		say(404, map[string]any{"message": "not found"})
	case versions && version != strconv.Itoa(b.version):
		say(404, map[string]any{"message": "version not found"})
	case versions:
		say(200, map[string]any{"version": b.version, "message": b.message})
	default:
		say(200, map[string]any{"dashboard": map[string]any{"version": b.version}, "meta": map[string]any{"provisioned": b.provisioned, "updatedBy": "alice"}})
	}
}

func (f *fake) save(board map[string]any, folder, message string, overwrite bool, say func(int, any)) {
	uid, _ := board["uid"].(string)
	b := f.boards[uid]
	switch {
	case !f.folders[folder]:
		say(400, map[string]any{"message": "folder not found"})
		return
	case board["id"] != nil:
		say(404, map[string]any{"message": "Dashboard not found"})
		return
	case b != nil && !overwrite && board["version"] != float64(b.version):
		say(412, map[string]any{"message": "The dashboard has been changed by someone else", "status": "version-mismatch"})
		return
	case b == nil:
		b = &saved{}
		f.boards[uid] = b
	}
	b.version, b.message, b.folder, b.board = b.version+1, message, folder, board
	say(200, map[string]any{"uid": uid, "url": "/d/" + uid + "/x", "version": b.version, "status": "success"})
}

func serveFake(t *testing.T) (*fake, *grafana.Pusher, []grafana.Dashboard) {
	t.Helper()
	f := &fake{t: t, folders: map[string]bool{}, boards: map[string]*saved{}, broken: map[string]int{}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	all, err := grafana.Dashboards(grafana.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	return f, &grafana.Pusher{URL: server.URL + "/", Token: "secret", Client: server.Client()}, all
}

// TestPush checks that a first push creates the folder and the dashboards, and that a second one
// replaces them.
func TestPush(t *testing.T) {
	for _, editor := range []bool{false, true} {
		f, p, all := serveFake(t)
		f.editor = editor
		for version := 1; version <= 2; version++ {
			done, err := p.Push(t.Context(), all)
			if err != nil || len(done) != len(all) {
				t.Fatalf("push %d: %v, %v", version, done, err)
			}
			for i, d := range all {
				b := f.boards[d.UID]
				if b == nil || b.version != version || b.folder != grafana.FolderUID || done[i].Version != version || done[i].URL != strings.TrimRight(p.URL, "/")+"/d/"+d.UID+"/x" {
					t.Errorf("push %d: %s is %+v, said to be %+v", version, d.UID, b, done[i])
				}
			}
		}
		if n := strings.Count(strings.Join(f.asked, "\n"), "POST /api/folders"); n != 1 {
			t.Errorf("the folder was made %d times", n)
		}
	}
}

// TestPushErrors checks that Grafana's refusals are reported with advice, and that nobody else's
// dashboards are replaced.
func TestPushErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(f *fake, p *grafana.Pusher)
		want string
		is   error
	}{
		{"token", func(_ *fake, p *grafana.Pusher) { p.Token = "other" }, "Invalid API key", grafana.ErrRefused},
		{"right to write", func(f *fake, _ *grafana.Pusher) { f.broken["POST /api/dashboards/db"] = 403 }, "role Editor", grafana.ErrRefused},
		{"right to folders", func(f *fake, _ *grafana.Pusher) { f.broken["POST /api/folders"] = 403 }, "push folder", grafana.ErrRefused},
		{"no right to folders", func(f *fake, _ *grafana.Pusher) { f.editor, f.broken["POST /api/folders"] = true, 403 }, "push folder", grafana.ErrRefused},
		{"changed meanwhile", func(f *fake, _ *grafana.Pusher) { f.broken["POST /api/dashboards/db"] = 412 }, "--force", grafana.ErrChanged},
		{"changed by people", func(f *fake, _ *grafana.Pusher) { f.boards[grafana.CellsUID] = &saved{version: 3, message: "mine"} }, "saved by alice", grafana.ErrChanged},
		{"provisioned", func(f *fake, _ *grafana.Pusher) { f.boards[grafana.CellsUID] = &saved{version: 3, provisioned: true} }, "dashboards write", grafana.ErrChanged},
		{"server error", func(f *fake, _ *grafana.Pusher) { f.broken["GET /api/folders/csigscope"] = 500 }, "500 Internal Server Error: broken 500", nil},
		{"not found", func(_ *fake, p *grafana.Pusher) { p.URL += "elsewhere" }, "404", nil},
		{"nobody", func(_ *fake, p *grafana.Pusher) { p.URL = "http://127.0.0.1:1" }, "refused", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, p, all := serveFake(t)
			tt.set(f, p)
			before := fmt.Sprint(f.boards[grafana.CellsUID])
			_, err := p.Push(t.Context(), all)
			if err == nil || !strings.Contains(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("got %v, want %q, %v", err, tt.want, tt.is)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error tells the token: %v", err)
			}
			if after := fmt.Sprint(f.boards[grafana.CellsUID]); after != before {
				t.Errorf("replaced %s by %s", before, after)
			}
		})
	}
}

// TestPushForce checks that Force replaces users' changes but no provisioned dashboards.
func TestPushForce(t *testing.T) {
	f, p, all := serveFake(t)
	p.Force = true
	f.boards[grafana.CellsUID] = &saved{version: 3, message: "mine"}
	if _, err := p.Push(t.Context(), all); err != nil || f.boards[grafana.CellsUID].version != 4 {
		t.Errorf("%v, %+v", err, f.boards[grafana.CellsUID])
	}
	f.boards[grafana.CellsUID].provisioned = true
	if _, err := p.Push(t.Context(), all); !errors.Is(err, grafana.ErrChanged) {
		t.Errorf("provisioned: %v", err)
	}
}

// TestPushRedirect expects an error, since a redirect would drop the token or turn a write into a
// read.
func TestPushRedirect(t *testing.T) {
	server := httptest.NewServer(http.RedirectHandler("https://login.example/", http.StatusFound))
	defer server.Close()
	p := grafana.Pusher{URL: server.URL, Token: "secret"}
	if _, err := p.Push(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "https://login.example/") {
		t.Errorf("got %v, want where it leads", err)
	}
}
