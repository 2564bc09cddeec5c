package daemon

import (
	"io/fs"
	"testing"
	"testing/fstest"
)

func TestFindMemoryLimit(t *testing.T) {
	none := func(string) string { return "" }
	files := func(pairs ...string) fs.FS {
		root := fstest.MapFS{}
		for i := 0; i < len(pairs); i += 2 {
			root[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
		}
		return root
	}
	const self, v2 = "proc/self/cgroup", "sys/fs/cgroup/"
	for name, c := range map[string]struct {
		configured uint64
		root       fs.FS
		want       uint64
	}{
		"nothing":              {0, files(), 0},
		"configured":           {7 << 20, files(self, "0::/\n", v2+"memory.max", "1000\n"), 7 << 20},
		"v2 container":         {0, files(self, "0::/\n", v2+"memory.max", "1000\n"), 900},
		"v2 no limit":          {0, files(self, "0::/\n", v2+"memory.max", "max\n"), 0},
		"v2 service":           {0, files(self, "0::/a.slice/b.service\n", v2+"a.slice/b.service/memory.max", "2000\n"), 1800},
		"v2 limit above":       {0, files(self, "0::/a/b\n", v2+"a/b/memory.max", "max\n", v2+"a/memory.max", "3000\n"), 2700},
		"v2 smallest":          {0, files(self, "0::/a/b\n", v2+"a/b/memory.max", "5000\n", v2+"a/memory.max", "3000\n"), 2700},
		"v1":                   {0, files(self, "5:cpu:/x\n4:memory:/x\n", v2+"memory/x/memory.limit_in_bytes", "1000\n"), 900},
		"v1 hidden folder":     {0, files(self, "4:memory:/docker/1f\n", v2+"memory/memory.limit_in_bytes", "4000\n"), 3600},
		"v1 no limit":          {0, files(self, "4:memory:/\n", v2+"memory/memory.limit_in_bytes", "9223372036854771712\n"), 0},
		"no text of a cgroup":  {0, files(self, "nonsense\n\n", v2+"memory.max", "1000\n"), 0},
		"no number":            {0, files(self, "0::/\n", v2+"memory.max", "many\n"), 0},
		"path that leaves top": {0, files(self, "0::/../../a\n", v2+"a/memory.max", "1000\n"), 900},
	} {
		if got := FindMemoryLimit(c.configured, c.root, none); got.Bytes != c.want || (got.Source == "") != (c.want == 0) || got.Go != 0 {
			t.Errorf("%s: %+v, want %d", name, got, c.want)
		}
	}
	set := func(text string) func(string) string { return func(string) string { return text } }
	if got := FindMemoryLimit(0, files(), set("400MiB")); got.Go == 0 {
		t.Errorf("%+v, want the environment's limit", got)
	}
	if got := FindMemoryLimit(0, files(), set("off")); got.Go != 0 {
		t.Errorf("%+v, want no limit of the environment", got)
	}
}
