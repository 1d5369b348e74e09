package gate

import (
	"cmp"
	"context"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/document"
)

// minRequestIDLength is the minimum length of a request id in a vote.
const minRequestIDLength = 8

// VoteFile holds decisions of approvers in a trusted file, such as one on a protected branch, for
// CI systems whose reviews curfew cannot read.
type VoteFile struct {
	Votes []VoteLine `yaml:"votes"`
}

// VoteLine is one decision in the file.
type VoteLine struct {
	// Request is a prefix of a request's id, at least 8 characters long.
	Request string
	By      string
	Allow   bool
	Reason  string
}

// UnmarshalYAML decodes a vote strictly, with positions in its errors.
func (v *VoteLine) UnmarshalYAML(n ast.Node) error {
	f := &document.File{}
	text := func(name string, to *string) func(ast.Node) error {
		return func(n ast.Node) (err error) {
			document.Note(n, document.Shape{Type: document.String})
			if *to = document.Scalar(n); *to == "" { // an id of digits must not become a number
				*to, err = f.Text(n, name)
			}
			return err
		}
	}
	_, err := f.Mapping(n, "a vote",
		document.Required("request", "beginning of the id of the request, at least 8 characters",
			text("request", &v.Request)), document.Required("by", "name of the approver", text("by", &v.By)),
		document.Required("allow", "true approves, false rejects", func(n ast.Node) (err error) {
			v.Allow, err = f.Flag(n, "allow")
			return err
		}),
		document.Optional("reason", "why", text("reason", &v.Reason)))
	if err == nil && (len(v.Request) < minRequestIDLength || strings.TrimSpace(v.By) == "") {
		err = f.At(n, "a vote needs request (at least %d characters of its id), by and allow", minRequestIDLength)
	}
	return err
}

// ReadVotes parses a file of votes strictly.
func ReadVotes(name string, src []byte) (*VoteFile, error) {
	f, err := document.Parse(name, src)
	if err != nil {
		return nil, err
	}
	var votes VoteFile
	if len(f.Bodies) == 0 {
		return &votes, nil
	}
	root, err := f.Body()
	if err != nil {
		return nil, err
	}
	return &votes, f.Decode(root, &votes)
}

// Ballot returns the votes of the file with the roles of their approvers.
func (f *VoteFile) Ballot(approvers map[string][]string) Ballot {
	return func(_ context.Context, request string) (votes []Vote, aside []string, err error) {
		for _, v := range f.Votes {
			if strings.HasPrefix(request, v.Request) {
				votes = append(votes, Vote{
					By: approval.Person{
						Name: v.By, Roles: approval.Roles(approvers, v.By),
						Proof: approval.Proof{Kind: approval.SelfDeclared, Subject: v.By, Detail: "a file of votes"},
					},
					Allow: v.Allow, Reason: cmp.Or(v.Reason, "a file of votes")})
			}
		}
		return votes, nil, nil
	}
}
