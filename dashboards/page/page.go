// Package page is the built-in web page, as static files in the binary: the verdict, both matrices,
// locations and the fabric over time, details of a cell, and live windows.
//
// It knows how bundles and frames of package query are drawn. It must never ask a store: it draws the
// answers of packages query and api, and loads nothing from other servers.
package page

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"text/template"

	"github.com/csigscope/csigscope/aggregate/query"
)

//go:embed static
var files embed.FS

// moduleNames are the page's own scripts. The page starts with main.js, which imports the others;
// the page lists them all, so that a browser fetches them at once.
var moduleNames = modules()

func modules() []string {
	names, _ := fs.Glob(files, "static/*.js") // fails only for invalid patterns
	for i, name := range names {
		names[i] = path.Base(name)
	}
	return names
}

// scriptNames are third-party scripts, which define global names.
var scriptNames = []string{uplot + "uPlot.iife.min.js"}

var styleNames = []string{uplot + "uPlot.min.css", "style.css"}

// uplot is the folder of uPlot 1.6.32 (MIT) in its released form. It draws the timeline of a cell.
// A test compares it with the released package.
const uplot = "uplot/"

// read returns a script or style. Third-party files are returned with their license.
func read(name string) (string, error) {
	text, err := files.ReadFile("static/" + name)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	if !strings.HasPrefix(name, uplot) {
		return string(text), nil
	}
	licence, err := files.ReadFile("static/" + uplot + "LICENSE")
	if err != nil {
		return "", fmt.Errorf("read licence of %s: %w", name, err)
	}
	return "/*\n" + string(licence) + "*/\n" + string(text) + "\n", nil
}

// Handler serves the page at /, its files, and everything else from api. The page's own paths
// accept GET and HEAD. It is safe for concurrent use.
func Handler(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "expected GET", http.StatusMethodNotAllowed)
	})
	index := sync.OnceValues(func() ([]byte, error) { // rendered once, since anyone may request it
		t, err := template.ParseFS(files, "static/index.html")
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		err = t.Execute(&out, struct{ Styles, Scripts, Modules []string }{styleNames, scriptNames, moduleNames})
		return out.Bytes(), err
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		text, err := index()
		if err != nil {
			http.Error(w, "the page could not be rendered", http.StatusInternalServerError)
			return
		}
		send(w, "text/html; charset=utf-8", text)
	})
	for _, name := range fileNames() {
		contentType := "text/javascript; charset=utf-8"
		if strings.HasSuffix(name, ".css") {
			contentType = "text/css; charset=utf-8"
		}
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, _ *http.Request) {
			text, err := read(name)
			if err != nil {
				http.Error(w, "no such file", http.StatusNotFound)
				return
			}
			send(w, contentType, []byte(text))
		})
	}
	return query.SecurityHeaders(mux)
}

// fileNames returns all files that the page links to.
func fileNames() []string { return slices.Concat(styleNames, scriptNames, moduleNames) }

// IsFile reports whether a request is for one of the page's own files. These are the same for all
// clients and hold no data, so they need no credential: the page loads first and then asks for one.
func IsFile(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	return r.URL.Path == "/" || slices.Contains(fileNames(), name)
}

func send(w http.ResponseWriter, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(body) // fails if the client has gone; there is nobody to report to
}
