package query

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/edge"
)

const (
	// DefaultTimeout bounds the work on one request over HTTP.
	DefaultTimeout = 30 * time.Second
	// concurrent is how many bundles are built at a time; further requests wait until their
	// deadline.
	concurrent = 4
)

// HandlerConfig configures NewHandler.
type HandlerConfig struct {
	Reader  Reader
	Options Options       // name, thresholds and bounds; range, signals, levels and step come from requests
	Timeout time.Duration // 0: DefaultTimeout
	Logger  *slog.Logger  // nil: discard
}

// NewHandler serves /api/v1/bundle, /api/v1/frames and /api/v1/extent, for GET and HEAD only.
// Answers are JSON, or for frames as described at FramesHead, never cached and never shared with
// other origins; errors are application/problem+json (RFC 9457). It is safe for concurrent use.
//
// Parameters of bundle: signal and level (names, separated by commas), from and to (RFC 3339 or
// Unix ns), step (a duration). Parameters of frames: the same, with one signal and level; fields
// (all or lean), src and dst (ids of groups). All are optional.
func NewHandler(cfg HandlerConfig) http.Handler {
	cfg.Timeout = cmp.Or(max(cfg.Timeout, 0), DefaultTimeout)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	a := &api{HandlerConfig: cfg, slots: make(chan struct{}, concurrent)}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/bundle", a.get(a.bundle))
	mux.HandleFunc("/api/v1/frames", a.get(a.frames))
	mux.HandleFunc("/api/v1/extent", a.get(a.extent))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.fail(w, r, http.StatusNotFound, errors.New("no such resource: expected /api/v1/bundle, /api/v1/frames or /api/v1/extent"))
	})
	return SecurityHeaders(mux)
}

// SecurityHeaders forbids browsers to load anything from elsewhere, to embed the answers in other
// sites, and to guess content types.
func SecurityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy",
			"default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// Unchanged reports whether the client already has the content with an ETag: whether the header
// If-None-Match names it (RFC 9110, section 13.1.2).
func Unchanged(client http.Header, tag string) bool {
	for _, line := range client.Values("If-None-Match") {
		for known := range strings.SplitSeq(line, ",") {
			if known = strings.TrimSpace(known); known == "*" || strings.TrimPrefix(known, "W/") == strings.TrimPrefix(tag, "W/") {
				return true
			}
		}
	}
	return false
}

type api struct {
	HandlerConfig
	slots chan struct{}
}

// get wraps an endpoint with the method check, the deadline and the queue.
func (a *api) get(endpoint func(context.Context, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			a.fail(w, r, http.StatusMethodNotAllowed, errors.New("method not allowed: expected GET"))
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), a.Timeout)
		defer cancel()
		select {
		case a.slots <- struct{}{}:
			defer func() { <-a.slots }()
		case <-ctx.Done():
			a.fail(w, r, OutcomeOf(r.Context(), ErrUnavailable).Status(), ErrUnavailable)
			return
		}
		answer, err := endpoint(ctx, r)
		if err != nil {
			a.fail(w, r, OutcomeOf(ctx, err).Status(), err)
			return
		}
		contentType := "application/octet-stream"
		body, encoded := answer.([]byte)
		if !encoded {
			contentType = "application/json"
			if body, err = json.Marshal(answer); err != nil {
				a.fail(w, r, http.StatusInternalServerError, err)
				return
			}
		}
		w.Header().Set("Content-Type", contentType)
		if _, err := w.Write(body); err != nil {
			a.Logger.DebugContext(ctx, "write answer", slog.String("path", r.URL.Path), slog.Any("error", err))
		}
	}
}

func (a *api) bundle(ctx context.Context, r *http.Request) (any, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	o, err := readOptions(values, a.Options)
	if err != nil {
		return nil, err
	}
	return Build(ctx, a.Reader, o)
}

func (a *api) frames(ctx context.Context, r *http.Request) (any, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	o, err := readOptions(values, a.Options, "fields", "src", "dst")
	if err != nil {
		return nil, err
	}
	lean, err := readChoice(values.Get("fields"), "all", "lean")
	if err != nil {
		return nil, fmt.Errorf("%w: fields: %w", ErrInvalid, err)
	}
	return BuildFrames(ctx, a.Reader, o, lean)
}

// extentJSON is the answer of /api/v1/extent.
type extentJSON struct {
	Fabric        string       `json:"fabric"`
	Empty         bool         `json:"empty"`
	FirstNS       NS           `json:"first_ns"`
	LastNS        NS           `json:"last_ns"`
	Signals       []SignalInfo `json:"signals"`
	ResolutionsNS []int64      `json:"resolutions_ns"`
	Observations  uint64       `json:"observations"`
}

func (a *api) extent(ctx context.Context, _ *http.Request) (any, error) {
	e, err := a.Reader.Extent(ctx)
	if err != nil {
		return nil, err
	}
	out := extentJSON{Fabric: a.Options.Fabric, Empty: e.Empty(), Observations: e.Observations, Signals: []SignalInfo{}, ResolutionsNS: []int64{}}
	if !out.Empty {
		out.FirstNS, out.LastNS = NS(e.First.UnixNano()), NS(e.Last.UnixNano())
	}
	out.Signals = append(out.Signals, describe(e.Signals)...)
	for _, r := range e.Resolutions {
		out.ResolutionsNS = append(out.ResolutionsNS, int64(r))
	}
	return out, nil
}

// maxParameter bounds the length of one parameter: the longest sensible value lists every signal.
const maxParameter = 512

// readOptions reads the parameters of a request, those of bundles and the further ones named,
// into a copy of base. It refuses unknown and repeated parameters: a misspelled bound must not
// silently widen the answer.
func readOptions(values url.Values, base Options, further ...string) (Options, error) {
	known := append([]string{"signal", "from", "to", "step", "level"}, further...)
	for name, v := range values {
		if !slices.Contains(known, name) {
			return base, fmt.Errorf("%w: unknown parameter %q: expected %s", ErrInvalid, name, strings.Join(known, ", "))
		}
		if len(v) > 1 || len(v[0]) > maxParameter {
			return base, fmt.Errorf("%w: parameter %s is given twice or longer than %d bytes", ErrInvalid, name, maxParameter)
		}
	}
	var err error
	if base.Named, err = readList(values.Get("signal"), signalName); err != nil {
		return base, fmt.Errorf("%w: signal: %w", ErrInvalid, err)
	}
	if base.Levels, err = readList(values.Get("level"), fabric.ParseLevel); err != nil {
		return base, fmt.Errorf("%w: level: %w", ErrInvalid, err)
	}
	if base.From, err = readTime(values.Get("from")); err != nil {
		return base, fmt.Errorf("%w: from: %w", ErrInvalid, err)
	}
	if base.To, err = readTime(values.Get("to")); err != nil {
		return base, fmt.Errorf("%w: to: %w", ErrInvalid, err)
	}
	if base.Step, err = readStep(values.Get("step")); err != nil {
		return base, fmt.Errorf("%w: step: %w", ErrInvalid, err)
	}
	if base.Src, err = readGroup(values.Get("src")); err != nil {
		return base, fmt.Errorf("%w: src: %w", ErrInvalid, err)
	}
	if base.Dst, err = readGroup(values.Get("dst")); err != nil {
		return base, fmt.Errorf("%w: dst: %w", ErrInvalid, err)
	}
	return base, nil
}

// readChoice reports whether a parameter has its second value; the first is its default.
func readChoice(text, first, second string) (bool, error) {
	if text != "" && text != first && text != second {
		return false, fmt.Errorf("read %q: expected %s or %s", text, first, second)
	}
	return text == second, nil
}

// readGroup parses a group's identifier, nil for an empty text.
func readGroup(text string) (*aggregate.GroupID, error) {
	if text == "" {
		return nil, nil
	}
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read group %q: expected an id of a bundle's groups", text)
	}
	group := aggregate.GroupID(id)
	return &group, nil
}

// signalName checks a name, whose meaning depends on the stored rows.
func signalName(name string) (string, error) {
	_, err := csig.ParseSignal(name)
	return name, err
}

// readList parses names separated by commas, each at most once.
func readList[T comparable](text string, parse func(string) (T, error)) ([]T, error) {
	if text == "" {
		return nil, nil
	}
	var out []T
	for name := range strings.SplitSeq(text, ",") {
		v, err := parse(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		if slices.Contains(out, v) {
			return nil, fmt.Errorf("read %q: listed twice", name)
		}
		out = append(out, v)
	}
	return out, nil
}

// readTime parses RFC 3339 or Unix ns. It refuses times that do not fit into Unix ns: window
// arithmetic would wrap.
func readTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ns, err := strconv.ParseInt(text, 10, 64); err == nil {
		return checkTime(time.Unix(0, ns))
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("read time %q: expected RFC 3339 such as 2026-01-31T12:00:00Z, or Unix ns", text)
	}
	return checkTime(t)
}

func checkTime(t time.Time) (time.Time, error) {
	if t.Before(time.Unix(0, 0)) || t.After(time.Unix(0, aggregate.EndOfTime)) {
		return time.Time{}, fmt.Errorf("read time %s: expected one in 1970 to 2105", t.UTC().Format(time.RFC3339Nano))
	}
	return t, nil
}

// maxStep is above every automatic step: the longest one is 512 days, of ranges of 85 years and more.
const maxStep = 1000 * 24 * time.Hour

func readStep(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	step, err := time.ParseDuration(text)
	if err != nil || step < 100*time.Microsecond || step > maxStep {
		return 0, fmt.Errorf("read step %q: expected a duration from 100us to 24000h, such as 10s", text)
	}
	return step, nil
}

// Outcome says how a request ended. Servers of every protocol get it from OutcomeOf.
type Outcome uint8

// The outcomes.
const (
	Answered    Outcome = iota
	Canceled            // the client left: no failure
	TimedOut            // there was no answer in time
	Unavailable         // the store is unreachable or slow, or the server stops
	Busy                // the client's limits are used up: the error is an edge.LimitError
	Invalid
	TooLarge
	NoData
	Failed // an internal error; the log has it
)

// RetryAfter is the header Retry-After of an Unavailable answer, in seconds.
const RetryAfter = "5"

// OutcomeOf is the outcome of work under ctx that ended with err. A canceled request fails in
// many ways, so ctx is checked before most errors.
func OutcomeOf(ctx context.Context, err error) Outcome {
	if err == nil {
		return Answered
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return Canceled
	}
	if _, limited := errors.AsType[*edge.LimitError](err); limited {
		return Busy
	}
	switch {
	case errors.Is(err, ErrInvalid):
		return Invalid
	case errors.Is(err, ErrTooLarge):
		return TooLarge
	case errors.Is(err, ErrNoData):
		return NoData
	case errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil:
		return TimedOut
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.Canceled):
		return Unavailable
	}
	return Failed
}

// UsedUp returns the message for a client whose limits are used up, and the header Retry-After;
// ok is false for all other errors.
func UsedUp(err error) (detail, retryAfter string, ok bool) {
	limited, ok := errors.AsType[*edge.LimitError](err)
	if !ok {
		return "", "", false
	}
	return limited.Detail, limited.RetryAfter(), true
}

// Status is the outcome as an HTTP status.
func (o Outcome) Status() int {
	return [...]int{
		Answered: http.StatusOK, Canceled: edge.StatusCanceled, TimedOut: http.StatusGatewayTimeout, Unavailable: http.StatusServiceUnavailable,
		Busy: http.StatusTooManyRequests, Invalid: http.StatusUnprocessableEntity, TooLarge: http.StatusUnprocessableEntity,
		NoData: http.StatusNotFound, Failed: http.StatusInternalServerError,
	}[o]
}

// fail answers with a problem. Internal errors are logged and not disclosed: they may name hosts
// and statements.
func (a *api) fail(w http.ResponseWriter, r *http.Request, code int, err error) {
	detail := err.Error()
	if code >= http.StatusInternalServerError {
		a.Logger.ErrorContext(r.Context(), "answer request",
			slog.String("path", r.URL.Path), slog.Int("status", code), slog.Any("error", err))
		detail = "the server could not answer: its log says why"
		switch code {
		case http.StatusGatewayTimeout:
			detail = "the answer took too long: take a longer step, a shorter range, one signal or one level"
		case http.StatusServiceUnavailable:
			w.Header().Set("Retry-After", RetryAfter)
			detail = "the answer has to wait, since the store or the server is too busy: try again later"
		}
	}
	if limit, retryAfter, ok := UsedUp(err); ok {
		w.Header().Set("Retry-After", retryAfter)
		detail = limit
	}
	edge.WriteProblem(w, code, detail)
}
