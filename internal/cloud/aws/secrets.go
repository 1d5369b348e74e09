package aws

import (
	"context"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

const secretsPage = 100

// secrets lists secrets by name; their values are never read.
func (p *place) secrets(ctx context.Context) {
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := secretsClient(p.reading).ListSecrets(ctx, &secretsmanager.ListSecretsInput{
			MaxResults: awssdk.Int32(secretsPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, s := range out.SecretList {
			r := p.resource(inventory.KindSecret, awssdk.ToString(s.Name))
			r.Name, r.CreatedAt, r.State = r.ID, utc(s.CreatedDate), inventory.StateAvailable
			if s.DeletedDate != nil {
				r.State = inventory.StateDeleting
			}
			r.Tags = tagged(s.Tags, func(t types.Tag) (*string, *string) { return t.Key, t.Value })
			d := &inventory.Secret{}
			if s.LastAccessedDate != nil { // absent: no access since the record began, at an unknown time
				d.LastAccessed = inventory.Known(s.LastAccessedDate.UTC())
			}
			r.Detail = d
			p.scan.add(r)
		}
		return out.NextToken, nil
	})
	p.failed(ctx, "secretsmanager:ListSecrets", err)
}
