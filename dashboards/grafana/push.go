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

// Push errors that callers distinguish.
var (
	ErrRefused = errors.New("refused by grafana") // the token is missing, wrong or not allowed to write
	ErrChanged = errors.New("changed in grafana") // someone else wrote or provisioned the dashboard
)

// maxAnswer is the maximum number of bytes read from a response.
const maxAnswer = 1 << 20

// pushTimeout bounds one request.
const pushTimeout = 30 * time.Second

// Pusher writes dashboards to a running Grafana over its HTTP API. It does not use the sdk's
// client, which hides most statuses.
type Pusher struct {
	URL   string // of Grafana, without the path of the API
	Token string // of a service account that may write folders and dashboards
	Force bool   // replace dashboards that others have changed
	// Client sends the requests; nil means a client of its own. Redirects are not followed, since
	// they would turn a write into a read.
	Client *http.Client
}

// ParseURL parses the address of a Grafana in the form of Pusher.URL.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("%q: expected the URL of Grafana such as https://grafana.example", text)
	}
	return u, nil
}

// Pushed is a written dashboard with its address.
type Pushed struct {
	Title, URL string
	Version    int
}

// Push creates the folder if necessary and writes the dashboards into it, replacing those of an
// earlier push. It stops at the first error and returns the dashboards written so far.
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

// HasPlugin reports whether Grafana has loaded a plugin. Any signed-in account may query that.
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

// folder checks for the folder before it creates it, since depending on Grafana's version the
// response to creating an existing folder is ambiguous. An Editor's token may create a folder, but
// in Grafana 12 it may not query a missing one.
func (p *Pusher) folder(ctx context.Context) error {
	status, err := p.ask(ctx, http.MethodGet, "/api/folders/"+FolderUID, nil, nil)
	if err == nil || status != http.StatusNotFound && status != http.StatusForbidden {
		return err
	}
	status, err = p.ask(ctx, http.MethodPost, "/api/folders", object{"uid": FolderUID, "title": "csigscope"}, nil)
	if status == http.StatusConflict || status == http.StatusPreconditionFailed {
		return nil // created by someone else in the meantime
	}
	return err
}

// message is stored in the dashboard's history.
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

// version returns the dashboard's version in Grafana, or 0 if there is none. If someone changed it
// since the last push, it is not replaced unless Force is set.
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

// ours reports whether a version came from a push. It queries the version itself, since Grafana 12
// lists the first version as "Initial save" whatever its message was.
func (p *Pusher) ours(ctx context.Context, uid string, version int) (bool, error) {
	var saved struct {
		Message string `json:"message"`
	}
	_, err := p.ask(ctx, http.MethodGet, fmt.Sprintf("/api/dashboards/uid/%s/versions/%d", uid, version), nil, &saved)
	return saved.Message == message, err
}

// ask sends a request and decodes the response into out. Every status except 200 and 201 is an
// error with Grafana's message.
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
			return response.StatusCode, fmt.Errorf("read answer of %s %s: %w: is this Grafana?", method, path, err)
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

// withoutURL removes the request from the error, since the caller names it.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// failure returns Grafana's message with advice.
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
		return fmt.Errorf("redirected to %s: give that address with --url", response.Header.Get("Location"))
	}
	return fmt.Errorf("%s: %s", response.Status, said.Message)
}
