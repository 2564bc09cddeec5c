package grafana

import (
	"embed"
	"fmt"
	"path"
)

//go:generate node matrix/build.mjs

// pluginDir is where the plugin is in the folder that Write makes.
const pluginDir = "plugins/" + MatrixPanelID

// allowed is what Grafana must have in its environment to load the plugin, which is not signed; as
// a setting it is allow_loading_unsigned_plugins in the section plugins.
const (
	allowFile = "grafana.env"
	allowed   = "GF_PLUGINS_ALLOW_LOADING_UNSIGNED_PLUGINS=" + MatrixPanelID + "\n"
)

// built is the panel plugin, which make generate builds of matrix/src.
//
//go:embed matrix/dist
var built embed.FS

// pluginFiles are the panel plugin as Grafana loads it from its folder of plugins, and the line that
// allows it.
func pluginFiles() ([]File, error) {
	const dir = "matrix/dist"
	entries, err := built.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read plugin: %w", err)
	}
	var files []File
	for _, e := range entries {
		content, err := built.ReadFile(path.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read plugin: %w", err)
		}
		files = append(files, File{path.Join(pluginDir, e.Name()), content})
	}
	return append(files, File{allowFile, []byte(allowed)}), nil
}
