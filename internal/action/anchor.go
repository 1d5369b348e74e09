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

// AnchorSchema is the schema of an [Anchor] document.
const AnchorSchema = "curfew.audit-anchor/v1"

// keyPrefix starts the text of a public key.
const keyPrefix = "ed25519:"

// Head is an entry of the audit log noted outside of it, so that rewriting the whole log is
// noticed.
type Head struct {
	// Entry is the number of the entry, from 1, and Hash its hash; First is the hash of the first
	// entry.
	Entry int64  `json:"entry"`
	Hash  string `json:"hash"`
	First string `json:"first"`
}

// Anchor is the signed end of the audit log at a time.
type Anchor struct {
	Schema string `json:"schema"`
	Head
	// At is the time of writing, by the clock of the state.
	At time.Time `json:"at"`
	// Key is the signer's public key; the anchor is valid only if it is the expected one.
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

// signed returns the signed bytes.
func (a Anchor) signed() []byte {
	return fmt.Appendf(nil, "%s\n%d\n%s\n%s\n%s\n", AnchorSchema, a.Entry, a.Hash, a.First,
		a.At.UTC().Format(time.RFC3339Nano))
}

// ErrUntrusted means that an anchor was signed with another key, or changed afterwards.
var ErrUntrusted = errors.New("the anchor is not to be trusted")

// untrusted is an ErrUntrusted with its reason.
type untrusted struct{ message string }

func (u *untrusted) Error() string        { return u.message }
func (u *untrusted) Is(target error) bool { return target == ErrUntrusted }

var hashText = lazyregexp.New(`^[0-9a-f]{64}$`)

// ParseAnchor parses an anchor signed by key. Invalid text is a *document.Error, another signer an
// [ErrUntrusted]. The text is at most a few kilobytes long.
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

// KeyText formats a public key: ed25519: and 44 characters.
func KeyText(key ed25519.PublicKey) string {
	return keyPrefix + base64.StdEncoding.EncodeToString(key)
}

// ParseKey parses a public key as formatted by [KeyText]; the prefix is optional.
func ParseKey(text string) (ed25519.PublicKey, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, keyPrefix))
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, errors.New("it is no key such as `curfew audit --anchor` prints, ed25519: and 44 characters")
	}
	return raw, nil
}
