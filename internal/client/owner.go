package client

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

const (
	// OwnerProofPath is the path at which a service proves that it knows its owner token.
	OwnerProofPath = "/auth/owner"
	// OwnerLinkPath is the path at which a service issues a browser sign-in link to its owner.
	OwnerLinkPath = "/auth/link"
	// proofTimeout bounds the proof on a new connection, maxProof its size in bytes.
	proofTimeout = 10 * time.Second
	maxProof     = 4 << 10
)

// OwnerProof is a service's response to an owner token challenge.
type OwnerProof struct {
	Proof string `json:"proof"`
}

// OwnerLink is a sign-in link: its path, and its lifetime in seconds.
type OwnerLink struct {
	Path      string `json:"path"`
	ExpiresIn int    `json:"expires_in"`
}

// ProofOfOwner returns the proof that a service knows an owner token: an HMAC-SHA256 over the
// client's nonce and the address and port of the connection. The address prevents a program that
// listens elsewhere from relaying the proof.
func ProofOfOwner(token, nonce, address string) string {
	mac := hmac.New(sha256.New, []byte(token))
	fmt.Fprintf(mac, "curfew.owner-proof/v1\n%s\n%s", nonce, address)
	return hex.EncodeToString(mac.Sum(nil))
}

// Unproven is returned if the program at a service's address does not prove that it knows the owner
// token. The token was not sent to it.
type Unproven struct{ Server string }

// Error implements error.
func (e *Unproven) Error() string {
	return "what listens at " + e.Server + " did not prove that it is a service of this user: nothing was sent to it"
}

// prove requires the server to prove on a new connection that it knows the owner token, before any
// other request is sent on it.
func (c *Client) prove(ctx context.Context, conn net.Conn) error {
	at, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok || !at.IP.IsLoopback() {
		return &Unproven{c.base}
	}
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	nonce := newKey()
	target := c.base + OwnerProofPath + "?nonce=" + url.QueryEscape(nonce)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	in := bufio.NewReader(io.LimitReader(conn, maxProof))
	resp, err := http.ReadResponse(in, req)
	if err != nil {
		return fmt.Errorf("read the proof of the service: %w", errors.Join(err, &Unproven{c.base}))
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	var said OwnerProof
	whole := err == nil && resp.StatusCode == http.StatusOK && !resp.Close && in.Buffered() == 0
	if !whole || json.Unmarshal(text, &said) != nil {
		return &Unproven{c.base}
	}
	if !hmac.Equal([]byte(said.Proof), []byte(ProofOfOwner(c.o.Token, nonce, at.String()))) {
		return &Unproven{c.base}
	}
	if !stop() { // the call ended during the proof
		return context.Cause(ctx)
	}
	return nil
}

// Link requests a browser sign-in link.
func (c *Client) Link(ctx context.Context) (OwnerLink, error) {
	var doc OwnerLink
	_, err := c.call(ctx, request{method: http.MethodPost, path: OwnerLinkPath}, "", &doc)
	return doc, err
}
