// Package code packs the code of a job into one archive that its content identifies, and unpacks it
// on a machine.
package code

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Suffix ends the names of archives, which begin with their SHA-256.
const Suffix = ".tar.gz"

// MaxBytes is the most that the files of an archive may have.
const MaxBytes = 256 << 20

// ErrTooLarge means that the files have more than MaxBytes.
var ErrTooLarge = errors.New("the files are too large")

// Pack returns the archive of some files of a folder, by their slash-separated names, and its
// SHA-256. The same content gives the same archive, whatever the order, times and owners. Symbolic
// links within the folder are kept; devices and sockets are an error.
func Pack(dir string, names []string) (archive []byte, sum string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, "", err
	}
	defer root.Close()
	var out bytes.Buffer
	zipped, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed) // the level is valid
	w := tar.NewWriter(zipped)
	total := int64(0)
	for _, name := range slices.Sorted(slices.Values(names)) {
		size, err := pack(w, root, name, MaxBytes-total)
		if err != nil {
			return nil, "", fmt.Errorf("pack %s: %w", name, err)
		}
		total += size
	}
	if err := errors.Join(w.Close(), zipped.Close()); err != nil {
		return nil, "", err
	}
	hash := sha256.Sum256(out.Bytes())
	return out.Bytes(), hex.EncodeToString(hash[:]), nil
}

func pack(w *tar.Writer, root *os.Root, name string, left int64) (int64, error) {
	info, err := root.Lstat(filepath.FromSlash(name))
	if err != nil {
		return 0, err
	}
	h := &tar.Header{Name: name, ModTime: time.Unix(0, 0), Mode: 0o644, Format: tar.FormatPAX}
	if info.Mode()&0o111 != 0 {
		h.Mode = 0o755
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = root.Readlink(filepath.FromSlash(name)); err != nil {
			return 0, err
		}
		if !filepath.IsLocal(filepath.Join(filepath.Dir(filepath.FromSlash(name)), h.Linkname)) {
			return 0, fmt.Errorf("the link to %s leads out of the folder", h.Linkname)
		}
		return 0, w.WriteHeader(h)
	case !info.Mode().IsRegular():
		return 0, errors.New("it is no file, folder or link")
	case info.Size() > left:
		return 0, ErrTooLarge
	}
	data, err := root.ReadFile(filepath.FromSlash(name))
	if err != nil {
		return 0, err
	}
	h.Size = int64(len(data))
	if err := w.WriteHeader(h); err != nil {
		return 0, err
	}
	_, err = w.Write(data)
	return h.Size, err
}

// Unpack writes the files of an archive into a folder, over files of the same names.
func Unpack(dir string, archive []byte) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	zipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	r := tar.NewReader(io.LimitReader(zipped, 2*MaxBytes))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unpack(root, r, h); err != nil {
			return fmt.Errorf("unpack %s: %w", h.Name, err)
		}
	}
}

func unpack(root *os.Root, r io.Reader, h *tar.Header) error {
	name := filepath.FromSlash(path.Clean(h.Name))
	if !filepath.IsLocal(name) || strings.HasSuffix(h.Name, "/") {
		return errors.New("its name leads out of the folder")
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, fs.FileMode(h.Mode&0o755))
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	}
	return errors.New("it is no file or link")
}
