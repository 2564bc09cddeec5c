package grafana

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Errors of a push that callers tell apart.
var (
	ErrRefused = errors.New("refused by grafana") // token missing, wrong or without the right to write
	ErrChanged = errors.New("changed in grafana") // somebody else wrote or provisioned the dashboard
)

// maxAnswer bounds what is read of an answer.
const maxAnswer = 1 << 20

// pushTimeout bounds one request.
const pushTimeout = 30 * time.Second

// Pusher puts dashboards into a running Grafana over its HTTP API. It asks by itself,
// since the sdk's client says nothing about most statuses.
type Pusher struct {
	URL   string // of Grafana, below which its API is
	Token string // of a service account that may write folders and dashboards
	Force bool   // replace dashboards that are at another version
	// Client asks; nil stands for one of its own. It is never given a redirect to follow,
	// which would turn a request to write into one to read.
	Client *http.Client
}

// ParseURL reads the address of a Grafana, as Pusher.URL has it.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("%q: expected the URL of Grafana such as https://grafana.example", text)
	}
	return u, nil
}

// Pushed says where a dashboard came to.
type Pushed struct {
	Title, URL string
	Version    int
}

// Push makes the folder, unless it is there, and writes the dashboards into it, replacing
// those that came from an earlier push. It stops at the first error; what it returns was
// written.
func (p *Pusher) Push(ctx context.Context, all []Dashboard) ([]Pushed, error) {
	if err := p.folder(ctx); err != nil {
		return nil, fmt.Errorf("push folder: %w", err)
	}
	var done []Pushed
	for i := range all {
		pushed, err := p.dashboard(ctx, &all[i])
		if err != nil {
			return done, fmt.Errorf("push dashboard %q: %w", all[i].Title, err)
		}
		done = append(done, pushed)
	}
	return done, nil
}

// HasPlugin reports whether Grafana has loaded a plugin, which any signed-in account may ask.
func (p *Pusher) HasPlugin(ctx context.Context, id string) (bool, error) {
	status, err := p.ask(ctx, http.MethodGet, "/api/plugins/"+id+"/settings", nil, nil)
	if status == http.StatusNotFound {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask for plugin %s: %w", id, err)
	}
	return true, nil
}

// folder looks before it makes: of two answers to the same request, by versions of
// Grafana, only one says clearly that the folder exists. An Editor's token may make a folder, but
// Grafana 12 forbids it to look for one that is missing.
func (p *Pusher) folder(ctx context.Context) error {
	status, err := p.ask(ctx, http.MethodGet, "/api/folders/"+FolderUID, nil, nil)
	if err == nil || status != http.StatusNotFound && status != http.StatusForbidden {
		return err
	}
	status, err = p.ask(ctx, http.MethodPost, "/api/folders", object{"uid": FolderUID, "title": "csigscope"}, nil)
	if status == http.StatusConflict || status == http.StatusPreconditionFailed {
		return nil // made by somebody else meanwhile
	}
	return err
}

// message is kept in the history of the dashboard.
const message = "csigscope dashboards push"

func (p *Pusher) dashboard(ctx context.Context, d *Dashboard) (Pushed, error) {
	var board object
	if err := json.Unmarshal(d.JSON, &board); err != nil {
		return Pushed{}, fmt.Errorf("read dashboard: %w", err)
	}
	version, err := p.version(ctx, d.UID)
	if err != nil {
		return Pushed{}, err
	}
	board["version"] = version
	var answer struct {
		URL     string `json:"url"`
		Version int    `json:"version"`
	}
	_, err = p.ask(ctx, http.MethodPost, "/api/dashboards/db",
		object{"dashboard": board, "folderUid": FolderUID, "overwrite": p.Force, "message": message}, &answer)
	return Pushed{Title: d.Title, URL: strings.TrimRight(p.URL, "/") + answer.URL, Version: answer.Version}, err
}

// version is that of the dashboard in Grafana, 0 where there is none. One that people
// changed since the last push is theirs until they say otherwise.
func (p *Pusher) version(ctx context.Context, uid string) (int, error) {
	var there struct {
		Dashboard struct {
			Version int `json:"version"`
		} `json:"dashboard"`
		Meta struct {
			Provisioned bool   `json:"provisioned"`
			UpdatedBy   string `json:"updatedBy"`
		} `json:"meta"`
	}
	status, err := p.ask(ctx, http.MethodGet, "/api/dashboards/uid/"+uid, nil, &there)
	switch {
	case status == http.StatusNotFound:
		return 0, nil
	case err != nil:
		return 0, err
	case there.Meta.Provisioned:
		return 0, fmt.Errorf("%w: it is provisioned from a file: write that file instead (csigscope dashboards write)", ErrChanged)
	case p.Force:
		return there.Dashboard.Version, nil
	}
	ours, err := p.ours(ctx, uid, there.Dashboard.Version)
	if err != nil {
		return 0, err
	}
	if !ours {
		return 0, fmt.Errorf("%w: version %d was saved by %s, not by a push: save it under another name, or push with --force", ErrChanged, there.Dashboard.Version, there.Meta.UpdatedBy)
	}
	return there.Dashboard.Version, nil
}

// ours reports whether a version came from a push. It asks for the version itself: in the list of
// versions, Grafana 12 calls the first one "Initial save" whatever its message was.
func (p *Pusher) ours(ctx context.Context, uid string, version int) (bool, error) {
	var saved struct {
		Message string `json:"message"`
	}
	_, err := p.ask(ctx, http.MethodGet, fmt.Sprintf("/api/dashboards/uid/%s/versions/%d", uid, version), nil, &saved)
	return saved.Message == message, err
}

// ask sends a request and reads its answer into out. Every status but 200 and 201 is an
// error, with what Grafana says.
func (p *Pusher) ask(ctx context.Context, method, path string, in, out any) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	var body io.Reader
	if in != nil {
		encoded, err := json.Marshal(in)
		if err != nil {
			return 0, fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(p.URL, "/")+path, body)
	if err != nil {
		return 0, fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+p.Token)
	request.Header.Set("Accept", "application/json")
	if in != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := p.client().Do(request)
	if err != nil {
		return 0, withoutURL(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return response.StatusCode, fmt.Errorf("read answer of %s %s: %w", method, path, err)
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusCreated {
		return response.StatusCode, fmt.Errorf("%s %s: %w", method, path, failure(response, text))
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			return response.StatusCode, fmt.Errorf("read answer of %s %s: %w: is this grafana?", method, path, err)
		}
	}
	return response.StatusCode, nil
}

func (p *Pusher) client() *http.Client {
	c := http.Client{}
	if p.Client != nil {
		c = *p.Client
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// withoutURL drops the request from the error: its caller names it.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// failure says what Grafana said, and what to do about it.
func failure(response *http.Response, text []byte) error {
	var said struct {
		Message string `json:"message"`
		Status  string `json:"status"`
	}
	if json.Unmarshal(text, &said) != nil || said.Message == "" {
		said.Message = fmt.Sprintf("%.200q", text)
	}
	switch code := response.StatusCode; {
	case code == http.StatusUnauthorized:
		return fmt.Errorf("%w: %s: the token is missing, wrong or expired", ErrRefused, said.Message)
	case code == http.StatusForbidden:
		return fmt.Errorf("%w: %s: the token's service account needs the role Editor", ErrRefused, said.Message)
	case code == http.StatusPreconditionFailed:
		return fmt.Errorf("%w: %s (%s): push with --force to replace it", ErrChanged, said.Message, said.Status)
	case code >= 300 && code < 400:
		return fmt.Errorf("redirected to %s: give that address", response.Header.Get("Location"))
	}
	return fmt.Errorf("%s: %s", response.Status, said.Message)
}
