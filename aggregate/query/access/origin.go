package access

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// origins are the web sites whose scripts may ask (CORS, as the Fetch standard has it).
type origins struct {
	allowed []string
	unsafe  *http.CrossOriginProtection // of what changes something
}

// maxOrigins bounds the web sites that are listed.
const maxOrigins = 64

func newOrigins(list []string) (o origins, err error) {
	if len(list) > maxOrigins {
		return o, fmt.Errorf("origins: %d of them: expected at most %d", len(list), maxOrigins)
	}
	o.unsafe = http.NewCrossOriginProtection()
	for _, text := range list {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Path+u.RawQuery+u.Fragment != "" || u.User != nil {
			return o, fmt.Errorf("origins: %.100q: expected a scheme and a host such as https://te.example", text)
		}
		if err := o.unsafe.AddTrustedOrigin(text); err != nil {
			return o, fmt.Errorf("origins: %.100q: %w", text, err)
		}
		o.allowed = append(o.allowed, strings.ToLower(text))
	}
	return o, nil
}

// What scripts may send and see.
const (
	corsMethods = "GET, HEAD, POST, DELETE"
	corsHeaders = "Authorization, Content-Type, Accept, If-None-Match, Last-Event-ID, Connect-Protocol-Version, Connect-Timeout-Ms, " +
		"Grpc-Timeout, X-Grpc-Web, X-User-Agent"
	corsExposed = "ETag, Retry-After, Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin"
	corsMaxAge  = "600" // seconds
)

// preflight answers a browser that asks whether a script may ask, and marks the answers to
// scripts that may.
func (o *origins) preflight(w http.ResponseWriter, r *http.Request) bool {
	if len(o.allowed) == 0 {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if !slices.Contains(o.allowed, strings.ToLower(origin)) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		h.Set("Access-Control-Expose-Headers", corsExposed)
		return false
	}
	h.Set("Access-Control-Allow-Methods", corsMethods)
	h.Set("Access-Control-Allow-Headers", corsHeaders)
	h.Set("Access-Control-Max-Age", corsMaxAge)
	w.WriteHeader(http.StatusNoContent)
	return true
}

// check refuses scripts of other web sites that would change something: a browser keeps
// answers from them, and not what they do.
func (o *origins) check(r *http.Request) error {
	if o.unsafe.Check(r) != nil {
		return errors.New("the request comes from another web site: list it among the origins of the configuration, if it is to be let in")
	}
	return nil
}
