// Package page is the built-in web page: both matrices, the location heatmap and
// their legend, as static files in the binary.
//
// It knows how a bundle is drawn. It must never ask a store: it draws what package
// query answers, and loads nothing from anywhere else.
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
// it names them all, so that a browser fetches them at once.
var moduleNames = modules()

func modules() []string {
	names, _ := fs.Glob(files, "static/*.js") // fails for bad patterns alone
	for i, name := range names {
		names[i] = path.Base(name)
	}
	return names
}

// scriptNames are those of others, which define a global name.
var scriptNames = []string{uplot + "uPlot.iife.min.js"}

var styleNames = []string{uplot + "uPlot.min.css", "style.css"}

// uplot is the folder of uPlot 1.6.32 (MIT) as it was released, which draws the timeline of
// a cell. A test holds it against the released package.
const uplot = "uplot/"

// read is a script or style. What is not ours comes with its licence.
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

// Handler serves the page at /, its files, and everything else from api. Of the page only
// GET and HEAD are answered. It is safe for concurrent use.
func Handler(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "expected GET", http.StatusMethodNotAllowed)
	})
	index := sync.OnceValues(func() ([]byte, error) { // strangers may ask for it
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

// fileNames are all files that the page links to.
func fileNames() []string { return slices.Concat(styleNames, scriptNames, moduleNames) }

// IsFile tells whether a request asks for one of the page's own files. They are the same for
// everybody and hold no data, so that who has still to show a credential may have them: the
// page then asks for it.
func IsFile(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	return r.URL.Path == "/" || slices.Contains(fileNames(), name)
}

func send(w http.ResponseWriter, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(body) // the client has gone: there is nobody to tell
}
