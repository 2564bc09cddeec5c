package page_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/dashboards/page"
)

func write(t *testing.T, b *query.Bundle) string {
	t.Helper()
	var out bytes.Buffer
	if err := page.WriteReport(&out, b); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestReportIsSelfContained finds nothing in a report that a browser would load.
func TestReportIsSelfContained(t *testing.T) {
	text := strings.ReplaceAll(write(t, bundle(t, 4, 5)), "/*! https://github.com/leeoniya/uPlot (v1.6.32) */", "")
	for _, pattern := range []string{`https?://`, `(?i)<(script|img|iframe|audio|video|source|embed)\b[^>]*\bsrc\s*=`, `(?i)@import`, `(?i)url\(`, `(?i)<link[^>]+href="[^d]`, `(?i)\bimport\s*\(`} {
		if found := regexp.MustCompile(pattern).FindString(text); found != "" {
			t.Errorf("report refers to something outside: %q", found)
		}
	}
	if !strings.Contains(text, `content="default-src 'none';`) {
		t.Error("report has no content security policy")
	}
}

// TestReportSurvivesHostileNames puts markup into every name.
func TestReportSurvivesHostileNames(t *testing.T) {
	const attack = `</script><script>alert(1)</script><!-- & ' "`
	b := bundle(t, 4, 5)
	clean := strings.Count(strings.ToLower(write(t, b)), "<script")
	b.Fabric, b.Groups[0].Name, b.Locations[0].Name = attack, attack, attack
	text := write(t, b)
	if got := strings.Count(strings.ToLower(text), "<script"); got != clean {
		t.Errorf("%d script elements, want %d: a name broke out", got, clean)
	}
	if got := strings.Count(strings.ToLower(text), "</script"); got != clean {
		t.Errorf("%d ends of scripts, want %d: a name broke out", got, clean)
	}
	_, rest, _ := strings.Cut(text, `id="bundle">`)
	data, _, _ := strings.Cut(rest, "</script>")
	var back query.Bundle
	if err := json.Unmarshal([]byte(data), &back); err != nil {
		t.Fatal(err)
	}
	if back.Groups[0].Name != attack {
		t.Errorf("name became %q", back.Groups[0].Name)
	}
}

func TestHandlerServesItsFiles(t *testing.T) {
	api := query.NewHandler(query.HandlerConfig{Reader: querytest.Fabric(2, 2)})
	h := page.Handler(api)
	get := func(method, target string) *http.Response {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
		return w.Result()
	}
	var index bytes.Buffer
	r := get("GET", "/")
	if _, err := index.ReadFrom(r.Body); err != nil {
		t.Fatal(err)
	}
	if got := r.Header.Get("Content-Security-Policy"); !strings.Contains(got, "default-src 'self'") {
		t.Errorf("policy %q", got)
	}
	if strings.Contains(index.String(), "<style") || regexp.MustCompile(`<script[^>]*>[^<]`).MatchString(index.String()) {
		t.Error("the served page has inline code, which its policy forbids")
	}
	links := regexp.MustCompile(`(?:src|href)="([^":]+)"`).FindAllStringSubmatch(index.String(), -1)
	if len(links) < 5 {
		t.Fatalf("%d files linked", len(links))
	}
	for _, link := range links {
		if got := get("GET", "/"+link[1]); got.StatusCode != 200 {
			t.Errorf("%s: status %d", link[1], got.StatusCode)
		}
	}
	for target, want := range map[string]int{"/api/v1/extent": 200, "/static/": 404, "/page.go": 404, "/index.html": 404} {
		if got := get("GET", target).StatusCode; got != want {
			t.Errorf("%s: status %d, want %d", target, got, want)
		}
	}
	if got := get("POST", "/").StatusCode; got != 405 {
		t.Errorf("POST: status %d, want 405", got)
	}
}

// TestIsFile: what needs no credential is what the page links to, and nothing of the API.
func TestIsFile(t *testing.T) {
	var index bytes.Buffer
	w := httptest.NewRecorder()
	page.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if _, err := index.ReadFrom(w.Body); err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{
		"GET /": true, "HEAD /": true, "GET /?token=x": true, "POST /": false, "POST /app.js": false, "GET /api/v1/extent": false, "GET /api/v1/frames": false,
		"GET //app.js": false, "GET /uplot/": false, "GET /app.js/": false, "GET /../app.js": false, "GET /metrics": false, "GET /openapi.json": false,
	}
	for _, link := range regexp.MustCompile(`(?:src|href)="([^":]+)"`).FindAllStringSubmatch(index.String(), -1) {
		targets["GET /"+link[1]] = true
	}
	for target, want := range targets {
		method, path, _ := strings.Cut(target, " ")
		if got := page.IsFile(httptest.NewRequest(method, path, nil)); got != want {
			t.Errorf("%s: %t, want %t", target, got, want)
		}
	}
}

// TestHandlerPassesOn gives the API what is its own.
func TestHandlerPassesOn(t *testing.T) {
	h := page.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Asked", r.URL.Path)
	}))
	for path, want := range map[string]string{"/openapi.json": "/openapi.json", "/api/v1/cells": "/api/v1/cells", "/service.Name/Method": "/service.Name/Method", "/": "", "/style.css": ""} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if got := w.Result().Header.Get("Asked"); got != want {
			t.Errorf("%s: the API was asked for %q, want %q", path, got, want)
		}
	}
}
