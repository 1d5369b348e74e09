package gate

import (
	"cmp"
	"context"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/document"
)

// leastID is how many characters of a request's id a vote has to give.
const leastID = 8

// VoteFile is the decisions of approvers in a file whose writers are trusted: a file of a
// protected branch, for CI whose reviews curfew cannot read.
type VoteFile struct {
	Votes []VoteLine `yaml:"votes"`
}

// VoteLine is one decision of a file.
type VoteLine struct {
	// Request is the beginning of a request's id, of 8 characters at least.
	Request string
	By      string
	Allow   bool
	Reason  string
}

// UnmarshalYAML reads a vote strictly; mistakes have their place.
func (v *VoteLine) UnmarshalYAML(n ast.Node) error {
	f := &document.File{}
	text := func(name string, to *string) func(ast.Node) error {
		return func(n ast.Node) (err error) {
			document.Note(n, document.Shape{Type: document.String})
			if *to = document.Scalar(n); *to == "" { // an id of digits alone is no number
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
	if err == nil && (len(v.Request) < leastID || strings.TrimSpace(v.By) == "") {
		err = f.At(n, "a vote needs request (at least %d characters of its id), by and allow", leastID)
	}
	return err
}

// ReadVotes reads a file of votes, strictly.
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

// Ballot returns the votes of the file, with the roles that approvers have.
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
