package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fencedText   = regexp.MustCompile("(?s)```.*?```")
	documentLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading      = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInAnchors = regexp.MustCompile("[^a-z0-9 _-]")
)

// anchorsOf returns the anchors of a document's headings, as GitHub and GitLab derive them.
func anchorsOf(text string) map[string]bool {
	anchors := make(map[string]bool)
	for _, h := range heading.FindAllStringSubmatch(fencedText.ReplaceAllString(text, ""), -1) {
		anchors[strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return anchors
}

// TestDocumentLinks: links from documents to files and headings of the repository resolve.
func TestDocumentLinks(t *testing.T) {
	const root = "../.."
	links := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (name == "node_modules" || name == "testdata" || path != root && strings.HasPrefix(name, ".")) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, link := range documentLink.FindAllStringSubmatch(fencedText.ReplaceAllString(string(text), ""), -1) {
			target, anchor, _ := strings.Cut(link[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			links++
			there := path
			if target != "" {
				there = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(there); err != nil {
				t.Errorf("%s: link to %s: %v", path, link[1], err)
				continue
			}
			if anchor == "" {
				continue
			}
			if other, err := os.ReadFile(there); err != nil || !anchorsOf(string(other))[anchor] {
				t.Errorf("%s: link to %s: no such heading", path, link[1])
			}
		}
		return nil
	})
	if err != nil || links < 50 {
		t.Errorf("%d links, %v", links, err)
	}
}
