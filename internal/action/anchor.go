package action

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// AnchorSchema names the document that an [Anchor] is.
const AnchorSchema = "curfew.audit-anchor/v1"

// keyPrefix begins the text of a public key.
const keyPrefix = "ed25519:"

// Head is an entry of the audit log that is noted outside of it, so that a log which was
// rewritten as a whole is noticed too.
type Head struct {
	// Entry is its number, from 1, and Hash its hash; First is that of the first entry.
	Entry int64  `json:"entry"`
	Hash  string `json:"hash"`
	First string `json:"first"`
}

// Anchor is the end of the audit log at a time, signed.
type Anchor struct {
	Schema string `json:"schema"`
	Head
	// At is when it was written, by the time of the state.
	At time.Time `json:"at"`
	// Key is the public key of who signed; it counts only where it is the expected one.
	Key       string `json:"key"`
	Signature []byte `json:"signature"`
}

// SignAnchor signs the end of the audit log at a time, to the second.
func SignAnchor(end Head, at time.Time, key ed25519.PrivateKey) Anchor {
	a := Anchor{
		Schema: AnchorSchema, Head: end, At: at.UTC().Truncate(time.Second),
		Key: KeyText(key.Public().(ed25519.PublicKey)),
	}
	a.Signature = ed25519.Sign(key, a.signed())
	return a
}

// signed is what the signature is of.
func (a Anchor) signed() []byte {
	return fmt.Appendf(nil, "%s\n%d\n%s\n%s\n%s\n", AnchorSchema, a.Entry, a.Hash, a.First,
		a.At.UTC().Format(time.RFC3339Nano))
}

// ErrUntrusted says that an anchor was signed with another key, or changed afterwards.
var ErrUntrusted = errors.New("the anchor is not to be trusted")

// untrusted is an ErrUntrusted that says why.
type untrusted struct{ message string }

func (u *untrusted) Error() string        { return u.message }
func (u *untrusted) Is(target error) bool { return target == ErrUntrusted }

var hashText = lazyregexp.New(`^[0-9a-f]{64}$`)

// ParseAnchor reads an anchor that key has signed. Text that is no anchor is a
// *document.Error, one of another signer an [ErrUntrusted]. The text is at most a few
// kilobytes long.
func ParseAnchor(name string, src []byte, key ed25519.PublicKey) (Anchor, error) {
	var a Anchor
	broken := func(message string) (Anchor, error) {
		return Anchor{}, &document.Error{File: name, Message: "it is no anchor of an audit log: " + message}
	}
	in := json.NewDecoder(bytes.NewReader(src))
	in.DisallowUnknownFields()
	if err := in.Decode(&a); err != nil {
		return broken(err.Error())
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return broken("something follows it")
	}
	switch {
	case a.Schema != AnchorSchema:
		return broken("its schema is not " + AnchorSchema)
	case a.Entry < 1 || !hashText.MatchString(a.Hash) || !hashText.MatchString(a.First) || a.Entry == 1 &&
		a.Hash != a.First:
		return broken("it names no entry")
	case a.Key != KeyText(key):
		return Anchor{}, &untrusted{
			name + ": it was signed with another key, " + a.Key + ", and not with " + KeyText(key),
		}
	case !ed25519.Verify(key, a.signed(), a.Signature):
		return Anchor{}, &untrusted{name + ": its signature is wrong: it was changed after it was signed"}
	}
	return a, nil
}

// KeyText writes a public key: ed25519: and 44 characters.
func KeyText(key ed25519.PublicKey) string {
	return keyPrefix + base64.StdEncoding.EncodeToString(key)
}

// ParseKey reads a public key as [KeyText] writes it; the prefix may be left out.
func ParseKey(text string) (ed25519.PublicKey, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, keyPrefix))
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, errors.New("it is no key such as `curfew audit --anchor` prints, ed25519: and 44 characters")
	}
	return raw, nil
}
