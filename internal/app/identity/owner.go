package identity

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/durable"
)

const (
	// OwnerFile is the file with the owner token, in the data directory of a service.
	OwnerFile = "owner-token"
	// ownerPrefix begins owner tokens.
	ownerPrefix = TokenPrefix + "owner_"
	// ownerBytes limits the size of the file; a real one has 78.
	ownerBytes = 1 << 10
)

// IsOwnerToken reports whether a text has the form of an owner token.
func IsOwnerToken(text string) bool {
	secret, ok := strings.CutPrefix(text, ownerPrefix)
	_, _, whole := HashToken(TokenPrefix + secret)
	return ok && whole
}

// Owner is the owner token of a service: whoever can read its file may do whatever the user of the
// service may. It is safe for concurrent use.
type Owner struct {
	// Path is the file.
	Path string

	mu    sync.Mutex
	as    fs.FileInfo
	token string
}

// MakeOwner returns the owner token of a data directory and creates it if necessary. It is an error
// if others can read the file or another user owns it.
func MakeOwner(dir string) (*Owner, error) {
	o := &Owner{Path: filepath.Join(dir, OwnerFile)}
	_, err := o.Token()
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeOwner(o.Path); err == nil || errors.Is(err, fs.ErrExist) {
			_, err = o.Token()
		}
	}
	if err != nil {
		return nil, &runtime.Error{Class: runtime.Usage, Code: "invalid_owner_token", Err: err,
			Hint: "remove the file and start again, or give another --data-dir"}
	}
	return o, nil
}

// makeOwner creates the file with a new token.
func makeOwner(path string) error {
	text, err := newToken()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = durable.Create(path, 0o600, []byte(ownerPrefix+strings.TrimPrefix(text, TokenPrefix)+"\n"))
	}
	if err != nil {
		return fmt.Errorf("make the owner token %s: %w", path, runtime.Cause(err))
	}
	return nil
}

// Token returns the current token in its file, so that removing or replacing the file revokes it.
func (o *Owner) Token() (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, err := os.Lstat(o.Path)
	if err == nil && o.token != "" && os.SameFile(now, o.as) && now.ModTime().Equal(o.as.ModTime()) &&
		now.Mode() == o.as.Mode() {
		return o.token, nil
	}
	o.token, o.as, err = readOwner(o.Path)
	return o.token, err
}

// Is reports whether a text equals the token.
func (o *Owner) Is(text string) bool {
	if o == nil || !IsOwnerToken(text) {
		return false
	}
	token, err := o.Token()
	return err == nil && subtle.ConstantTimeCompare([]byte(token), []byte(text)) == 1
}

// ReadOwner returns the owner token of a data directory; the error wraps fs.ErrNotExist if there is
// none. It is an error if others can read the file or another user owns it.
func ReadOwner(dir string) (string, error) {
	token, _, err := readOwner(filepath.Join(dir, OwnerFile))
	return token, err
}

// readOwner reads a file that belongs to this user and that no one else can read.
func readOwner(path string) (string, fs.FileInfo, error) {
	refuse := func(why string, a ...any) (string, fs.FileInfo, error) {
		return "", nil, fmt.Errorf("the owner token %s is not used: "+why, append([]any{path}, a...)...)
	}
	// Do not follow a link, or wait for a pipe, that another user placed there.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return refuse("it is a link")
	}
	if err != nil {
		return "", nil, fmt.Errorf("read the owner token %s: %w", path, runtime.Cause(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", nil, fmt.Errorf("read the owner token %s: %w", path, runtime.Cause(err))
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return refuse("it is no file")
	case !known || int64(owner.Uid) != int64(os.Geteuid()):
		return refuse("it belongs to another user")
	case info.Mode().Perm()&0o077 != 0:
		return refuse("others can read it (mode %04o)", info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, ownerBytes))
	if err != nil {
		return "", nil, fmt.Errorf("read the owner token %s: %w", path, runtime.Cause(err))
	}
	token := strings.TrimSuffix(string(text), "\n")
	if !IsOwnerToken(token) {
		return refuse("it is not what `curfew serve` writes")
	}
	return token, info, nil
}
