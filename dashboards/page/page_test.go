package page_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/dashboards/page"
	"github.com/csigscope/csigscope/dashboards/page/pagetest"
)

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
	elsewhere := regexp.MustCompile(`(?i)(src|href)="?https?://|@import|url\(|\bimport\s*\(\s*(?:[^"\s]|"[^.])|\bfrom\s+"[^.]`)
	for _, link := range append(links, []string{"", ""}) {
		got := get("GET", "/"+link[1])
		text, err := io.ReadAll(got.Body)
		if err != nil || got.StatusCode != 200 {
			t.Errorf("%s: status %d (%v)", link[1], got.StatusCode, err)
		}
		if found := elsewhere.Find(text); found != nil {
			t.Errorf("%s loads something from outside: %q", link[1], found)
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

// TestIsFile checks that the files without credentials are those that the page links to, and that
// none belong to the API.
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

// TestHandlerPassesOn checks that API requests reach the API.
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

// TestUplotIsTheReleasedOne compares the served copy with the package, which the lock file pins by
// hash.
func TestUplotIsTheReleasedOne(t *testing.T) {
	for name, origin := range map[string]string{
		"uPlot.iife.min.js": "dist/uPlot.iife.min.js", "uPlot.min.css": "dist/uPlot.min.css", "LICENSE": "LICENSE",
	} {
		want, err := os.ReadFile(filepath.Join("testdata/uplot/node_modules/uplot", origin))
		if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") == "" {
			t.Skip("NOT TESTED: uPlot is not installed: make deps")
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("static/uplot", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("static/uplot/%s is not what was released: copy %s of the package", name, origin)
		}
	}
}

// TestGlossary compares the terms in the page's help with the glossary. They must have the same text,
// except for numbers that the page takes from the configuration.
func TestGlossary(t *testing.T) {
	help, err := os.ReadFile("static/index.html")
	if err != nil {
		t.Fatal(err)
	}
	glossary, err := os.ReadFile("../../aggregate/README.md")
	if err != nil {
		t.Fatal(err)
	}
	const defaults = "Default thresholds: available bandwidth at most 20 % of the port's capacity, hop delay at least 20 us, queue depth at least 50 %."
	for name, text := range map[string][]byte{"help": help, "glossary": glossary} {
		if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), defaults) {
			t.Errorf("the %s does not say: %s", name, defaults)
		}
	}
	words := regexp.MustCompile(`(?s)<dl id="words">.*?</dl>`).FindString(string(help))
	terms := regexp.MustCompile(`<dt>(.*?)</dt><dd>(.*?)</dd>`).FindAllStringSubmatch(words, -1)
	if len(terms) < 10 {
		t.Errorf("the help explains %d terms", len(terms))
	}
	for _, term := range terms {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(term[1]) + ` \| (.*) \|$`).FindStringSubmatch(string(glossary))
		if row == nil {
			t.Errorf("the glossary has no %q", term[1])
			continue
		}
		for _, part := range regexp.MustCompile(`<span.*?</span>`).Split(term[2], -1) {
			if !strings.Contains(row[1], strings.TrimSpace(part)) {
				t.Errorf("%s is %q in the glossary, and %q in the help", term[1], row[1], part)
			}
		}
	}
}

// TestPageIsLight bounds the compressed size of the page without its data, and the size of the
// pictures in the README.
func TestPageIsLight(t *testing.T) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	h := page.Handler(http.NotFoundHandler())
	index := httptest.NewRecorder()
	h.ServeHTTP(index, httptest.NewRequest("GET", "/", nil))
	for _, link := range append(regexp.MustCompile(`(?:src|href)="([^":]+)"`).FindAllStringSubmatch(index.Body.String(), -1), []string{"", ""}) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/"+link[1], nil))
		if _, err := zip.Write(w.Body.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("the page takes %d bytes", out.Len())
	if out.Len() > 300_000 {
		t.Errorf("the page takes %d bytes compressed, at most 300,000 are meant to", out.Len())
	}
	pictures, err := filepath.Glob("screenshots/*.png")
	if err != nil || len(pictures) == 0 {
		t.Fatalf("no screenshots: %v", err)
	}
	var size int64
	for _, name := range pictures {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > 1_500_000 {
		t.Errorf("the screenshots take %d bytes, at most 1,500,000 are meant to", size)
	}
}

func TestMain(m *testing.M) { os.Exit(pagetest.Main(m)) }
