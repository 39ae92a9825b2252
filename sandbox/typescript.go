package sandbox

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/sojourn-run/sojourn/sandbox/internal/lockdown"
)

// typescript has the extensions of handlers that are compiled to JavaScript before they run.
var typescript = []string{"ts", "tsx", "mts", "cts"}

func isTypescript(path string) bool {
	return slices.Contains(typescript, strings.TrimPrefix(filepath.Ext(path), "."))
}

// moduleEndings are extensions that an import in TypeScript may omit, or name in their compiled form.
var moduleEndings = []string{
	".ts", ".tsx", ".mts", ".cts", ".js", ".mjs", ".cjs", ".json", "/index.ts", "/index.tsx", "/index.js",
}

// compile bundles a handler in TypeScript and its imports from the folder root into one JavaScript module with a source
// map. Packages remain imports. It reads only files of the folder, because it runs in the worker with the worker's
// rights. Types are removed and not checked. Invalid code becomes a module that fails with the position of the error,
// so that its calls fail like those of other handlers.
func compile(root, path string) (*graph, error) {
	g := &graph{entry: path, own: map[string]string{}, to: map[string][]string{}, stamps: map[string]fileStamp{}}
	real, err := filepath.Abs(root)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return nil, err
	}
	settings, absent, err := readSettings(real, path)
	g.absent = append(g.absent, absent...)
	for _, file := range settings.files {
		info, serr := os.Stat(file)
		code, rerr := readCode(file)
		if serr == nil && rerr == nil {
			g.own[file], g.stamps[file] = hashOf(code), stampOf(info)
			g.to[path] = append(g.to[path], file)
		}
	}
	if err != nil {
		code, rerr := readCode(path)
		if info, serr := os.Stat(path); serr == nil && rerr == nil {
			g.own[path], g.stamps[path] = hashOf(code), stampOf(info)
		}
		g.code = wrongCode(filepath.Dir(path), api.Message{Text: err.Error()})
		return g, rerr
	}
	var unread error // unread is the error of the entry
	folder := api.Plugin{Name: "folder", Setup: func(b api.PluginBuild) {
		b.OnResolve(api.OnResolveOptions{Filter: ".*"}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
			if a.Kind == api.ResolveEntryPoint {
				return api.OnResolveResult{Path: path}, nil
			}
			if !strings.HasPrefix(a.Path, "./") && !strings.HasPrefix(a.Path, "../") {
				for _, at := range settings.leads(a.Path) {
					found, absent := resolveModule(real, at)
					g.absent = append(g.absent, absent...)
					if found != "" {
						g.to[a.Importer] = append(g.to[a.Importer], found)
						return api.OnResolveResult{Path: found}, nil
					}
				}
				return api.OnResolveResult{Path: a.Path, External: true}, nil
			}
			at := filepath.Join(a.ResolveDir, filepath.FromSlash(a.Path))
			found, absent := resolveModule(real, at)
			g.absent = append(g.absent, absent...)
			if found == "" { // Node resolves it, in the executor
				return api.OnResolveResult{Path: fileURL(at), External: true}, nil
			}
			g.to[a.Importer] = append(g.to[a.Importer], found)
			return api.OnResolveResult{Path: found}, nil
		})
		b.OnLoad(api.OnLoadOptions{Filter: ".*"}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
			info, err := os.Stat(a.Path)
			var code []byte
			if err == nil {
				code, err = readCode(a.Path)
			}
			if err != nil {
				if a.Path == path {
					unread = err
				}
				return api.OnLoadResult{}, err
			}
			g.own[a.Path], g.stamps[a.Path] = hashOf(code), stampOf(info)
			text, loader := string(code), api.LoaderJS
			switch ext := filepath.Ext(a.Path); {
			case ext == ".json":
				loader = api.LoaderJSON
			case ext == ".tsx":
				loader = api.LoaderTSX
			case isTypescript(a.Path):
				loader = api.LoaderTS
			}
			return api.OnLoadResult{Contents: &text, Loader: loader, ResolveDir: filepath.Dir(a.Path)}, nil
		})
	}}
	dir := filepath.Dir(path)
	raw, markup := settings.compiler()
	jsx := api.JSXAutomatic
	if markup {
		jsx = api.JSXTransform // transform JSX as tsconfig.json specifies
	}
	done := api.Build(api.BuildOptions{
		EntryPoints: []string{path}, Bundle: true, Format: api.FormatESModule, Platform: api.PlatformNode,
		Target: api.ES2022, Outfile: path + ".mjs", AbsWorkingDir: dir, Plugins: []api.Plugin{folder},
		Sourcemap: api.SourceMapInline, SourceRoot: fileURL(dir) + "/", SourcesContent: api.SourcesContentExclude,
		TsconfigRaw: raw, JSX: jsx, LogLevel: api.LogLevelSilent, KeepNames: true,
		Banner: map[string]string{"js": "import { createRequire as $createRequire } from 'node:module';" +
			" const require = $createRequire(import.meta.url);"},
	})
	switch {
	case unread != nil:
		return nil, unread
	case len(done.Errors) > 0:
		g.code = wrongCode(dir, done.Errors[0])
	case len(done.OutputFiles) != 1:
		return nil, fmt.Errorf("%s: the compiler wrote %d files instead of one", path, len(done.OutputFiles))
	default:
		g.code = done.OutputFiles[0].Contents
	}
	if len(g.code) > maxCode {
		return nil, fmt.Errorf("%s: %d bytes of code exceed %d", path, len(g.code), maxCode)
	}
	return g, nil
}

// resolveModule returns the file that an import names, inside the folder root; empty if none exists. absent lists the
// paths with precedence at which no file exists.
func resolveModule(root, at string) (found string, absent []string) {
	candidates := []string{at}
	for _, as := range [][2]string{{".js", ".ts"}, {".js", ".tsx"}, {".mjs", ".mts"}, {".cjs", ".cts"}} {
		if stem, ok := strings.CutSuffix(at, as[0]); ok {
			candidates = append(candidates, stem+as[1])
		}
	}
	for _, ending := range moduleEndings {
		candidates = append(candidates, at+filepath.FromSlash(ending))
	}
	for i, c := range candidates {
		real, err := filepath.EvalSymlinks(c)
		if err == nil && isFile(real) && lockdown.Below(real, root) {
			return c, candidates[:i]
		}
	}
	return "", candidates
}

func fileURL(path string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(path)}).String()
}

// wrongCode returns a module that fails with the error in the code that it replaces.
func wrongCode(dir string, m api.Message) []byte {
	place, message := "", m.Text
	if l := m.Location; l != nil {
		file := l.File
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		place = fmt.Sprintf("%s:%d:%d\n%s\n", file, l.Line, l.Column+1, l.LineText)
		message += fmt.Sprintf(" (%s, line %d)", filepath.Base(file), l.Line) // in the format of Python's messages
	}
	text, _ := json.Marshal(message) // cannot fail: a string
	stack, _ := json.Marshal(place + "SyntaxError: " + m.Text)
	return fmt.Appendf(nil, "throw Object.assign(new SyntaxError(%s), { stack: %s });\n", text, stack)
}
