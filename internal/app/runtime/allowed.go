package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// IsBucket reports whether a path names objects of a bucket.
func IsBucket(path string) bool { return strings.HasPrefix(path, "s3://") }

// AllowedPath resolves a path from a caller of the service and checks that the configuration allows
// it under a key: it is a listed path, or below one. Symbolic links must not lead out of these. A
// relative path is tried below each.
func (req *Request) AllowedPath(name, key string, allow []string) (string, error) {
	refused := &Error{
		Class: Denied, Code: "not_allowed",
		Err:  fmt.Errorf("%s is not under a path that the service may read for callers", name),
		Hint: "an admin lists such paths under " + key + " in curfew.yaml",
	}
	if IsBucket(name) {
		for _, a := range allow {
			a = strings.TrimRight(a, "/")
			if IsBucket(a) && (name == a || strings.HasPrefix(name, a+"/")) && !strings.Contains(name, "/../") &&
				!strings.HasSuffix(name, "/..") {
				return name, nil
			}
		}
		return "", refused
	}
	var missing error
	for _, a := range allow {
		if IsBucket(a) {
			continue
		}
		root, err := filepath.Abs(req.Path(a))
		if err != nil {
			return "", fmt.Errorf("find %s: %w", a, err)
		}
		at := filepath.Clean(name)
		if !filepath.IsAbs(at) {
			at = filepath.Join(root, at)
		}
		if !inside(at, root) { // before any lookup, because the answer would reveal what exists
			continue
		}
		real, err := filepath.EvalSymlinks(at)
		if err != nil {
			missing = err
			continue
		}
		if root, err = filepath.EvalSymlinks(root); err == nil && inside(real, root) {
			return real, nil
		}
	}
	if errors.Is(missing, fs.ErrNotExist) {
		return "", InvalidFile(fmt.Errorf("read %s: %w", name, fs.ErrNotExist))
	}
	return "", refused
}

// inside reports whether a path is a folder or in it.
func inside(path, root string) bool {
	rel, err := filepath.Rel(root, path)
	return err == nil && filepath.IsLocal(rel)
}
