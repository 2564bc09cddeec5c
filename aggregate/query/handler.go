package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"
)

// Limits of the HTTP interface.
const (
	// DefaultTimeout bounds the work on one request.
	DefaultTimeout = 30 * time.Second
	// DefaultConcurrent is how many bundles are built at a time; further requests
	// wait until their deadline.
	DefaultConcurrent = 4
)

// HandlerConfig configures NewHandler.
type HandlerConfig struct {
	Reader     Reader
	Options    Options       // name and bounds; range, signals, levels and step come from requests
	Timeout    time.Duration // 0: DefaultTimeout
	Concurrent int           // 0: DefaultConcurrent
	Logger     *slog.Logger  // nil: discard
}

// NewHandler serves /api/v1/bundle, /api/v1/frames and /api/v1/extent, for GET and HEAD
// only. Answers are JSON, those of frames as FramesHead says, never cached and never shared with other origins; errors are
// application/problem+json (RFC 9457). It is safe for concurrent use.
//
// Parameters of bundle: signal and level (names, separated by commas), from and to
// (RFC 3339 or Unix ns), step (a duration), cells (windows, or total for a bundle whose
// windows come as frames). Those of frames: the same but cells, with one signal and
// level; fields (all or lean), src and dst (ids of groups). All are optional.
func NewHandler(cfg HandlerConfig) http.Handler {
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Concurrent <= 0 {
		cfg.Concurrent = DefaultConcurrent
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	a := &api{HandlerConfig: cfg, slots: make(chan struct{}, cfg.Concurrent)}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/bundle", a.get(a.bundle))
	mux.HandleFunc("/api/v1/frames", a.get(a.frames))
	mux.HandleFunc("/api/v1/extent", a.get(a.extent))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.fail(w, r, http.StatusNotFound, errors.New("no such resource: expected /api/v1/bundle, /api/v1/frames or /api/v1/extent"))
	})
	return SecurityHeaders(mux)
}

// SecurityHeaders forbids browsers to load anything from elsewhere, to embed the
// answers in other sites, and to guess content types.
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
			a.fail(w, r, status(r.Context(), fmt.Errorf("too many requests at a time: %w", ErrUnavailable)), ErrUnavailable)
			return
		}
		answer, err := endpoint(ctx, r)
		if err != nil {
			a.fail(w, r, status(ctx, err), err)
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
	o, err := readOptions(values, a.Options, "cells")
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
