package grafana

import (
	"embed"
	"fmt"
	"path"
)

//go:generate node matrix/build.mjs

// pluginDir is the plugin's folder in the folder that Write creates.
const pluginDir = "plugins/" + MatrixPanelID

// allowed must be in Grafana's environment, since the plugin is not signed. The corresponding
// setting is allow_loading_unsigned_plugins in the section plugins.
const (
	allowFile = "grafana.env"
	allowed   = "GF_PLUGINS_ALLOW_LOADING_UNSIGNED_PLUGINS=" + MatrixPanelID + "\n"
)

// built is the panel plugin, which make generate builds of matrix/src.
//
//go:embed matrix/dist
var built embed.FS

// pluginFiles returns the panel plugin in the form of Grafana's plugin folder, and the environment
// line that allows it.
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
