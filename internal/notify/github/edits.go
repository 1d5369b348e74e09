package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	api "github.com/google/go-github/v74/github"

	"github.com/curfew-dev/curfew/internal/httpclient"
)

// editsQuery asks whether the text of a review was edited. Whoever may write to a repository may
// edit the text of others there, and the REST API does not show it
// (https://docs.github.com/en/graphql/reference/objects#pullrequestreview).
const editsQuery = `query($id: ID!) { node(id: $id) { ... on PullRequestReview { id lastEditedAt } } }`

// edited reports whether the text of a review was changed after the reviewer submitted it.
func (c *Client) edited(ctx context.Context, r *api.PullRequestReview) (bool, error) {
	what := "find out whether the review " + r.GetHTMLURL() + " was edited for"
	// GitHub Enterprise Server has its REST API at /api/v3 and GraphQL at /api/graphql.
	path := "graphql"
	if strings.HasSuffix(c.api.BaseURL.Path, "/v3/") {
		path = "../graphql"
	}
	question := map[string]any{"query": editsQuery, "variables": map[string]string{"id": r.GetNodeID()}}
	req, err := c.api.NewRequest(http.MethodPost, path, question)
	if err != nil {
		return false, c.failure(ctx, what, err)
	}
	httpclient.MarkIdempotent(req) // it only reads
	var answer struct {
		Data struct {
			Node *struct {
				ID           string     `json:"id"`
				LastEditedAt *time.Time `json:"lastEditedAt"`
			} `json:"node"`
		} `json:"data"`
		Errors []struct {
			Message string `json:"message"`
		} `json:"errors"`
	}
	if _, err := c.api.Do(ctx, req, &answer); err != nil {
		return false, c.failure(ctx, what, err)
	}
	if len(answer.Errors) > 0 {
		return false, fmt.Errorf("%s %s: GitHub answered: %s", what, c.pull, c.secrets.Clean(answer.Errors[0].Message))
	}
	node := answer.Data.Node
	if node == nil || node.ID == "" || node.ID != r.GetNodeID() {
		return false, c.failure(ctx, what, errors.New("GitHub does not say"))
	}
	return node.LastEditedAt != nil, nil
}
