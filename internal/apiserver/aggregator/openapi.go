package aggregator

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// openAPIUser is the user of requests for OpenAPI documents, which any user may
// read.
const openAPIUser = "system:aggregator"

const (
	openAPIV2 = "/openapi/v2"
	openAPIV3 = "/openapi/v3"
)

// publish publishes the server's OpenAPI documents: the URLs of version 3, and
// the part of version 2 for the group version. For a server without version 3,
// version 2 is converted.
func (b *backend) publish(ctx context.Context) error {
	v3, err := b.fetch(ctx, openAPIV3, "application/json", openAPIUser)
	if err != nil {
		return err
	}
	if v3.code == http.StatusOK {
		if err := b.publishV3(v3.body); err != nil {
			return err
		}
	}
	v2, err := b.fetch(ctx, openAPIV2, "application/json", openAPIUser)
	if err != nil {
		return err
	}
	if v2.code != http.StatusOK {
		return nil
	}
	compressed, err := compress(v2.body)
	if err != nil {
		return err
	}
	path := "apis/" + b.groupVersion().String()
	read := func() (*spec.Swagger, error) {
		all, err := decompress(compressed)
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", openAPIV2, b.name, err)
		}
		return aggregator.FilterSpecByPathsWithoutSideEffects(all, []string{"/" + path + "/"}), nil
	}
	b.server.Documents.SetV2(b.name, read)
	if b.converted = v3.code == http.StatusNotFound; b.converted {
		b.server.Documents.SetV3(path, fmt.Sprintf("%x", sha256.Sum256(v2.body)), func() ([]byte, error) {
			all, err := read()
			if err != nil {
				return nil, err
			}
			return json.Marshal(openapiconv.ConvertV2ToV3(all))
		})
	}
	return nil
}

func (b *backend) publishV3(raw []byte) error {
	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		return fmt.Errorf("%s of %s: %w", openAPIV3, b.name, err)
	}
	urls := map[string]string{}
	for path, entry := range index.Paths {
		urls[path] = entry.URL
	}
	b.server.Documents.SetV3Remote(b.name, urls, b)
	return nil
}

// removeDocuments removes the server's documents.
func (b *backend) removeDocuments() {
	b.server.Documents.SetV2(b.name, nil)
	b.server.Documents.SetV3Remote(b.name, nil, nil)
	if b.converted {
		b.server.Documents.SetV3("apis/"+b.groupVersion().String(), "", nil)
	}
}

// compress compresses a document that is rarely read.
func compress(raw []byte) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(raw); err != nil {
		return nil, err
	}
	err := z.Close()
	return b.Bytes(), err
}

func decompress(compressed []byte) (*spec.Swagger, error) {
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	all := &spec.Swagger{}
	return all, all.UnmarshalJSON(raw)
}
