package nodejoin

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-io/coracle/internal/bootstraptoken"
)

const (
	// askAgain is the time between two questions for cluster-info.
	askAgain = time.Second
	// maxAnswer bounds, in bytes, what is read of an answer: its server may be anybody.
	maxAnswer = 1 << 20
)

// Discover asks the API server at a URL for cluster-info, and returns what it says
// if the token has signed it, the authority in it consists of certificates with the
// given hashes, and the API server proves to be the authority's. It asks until it is
// answered and the signature is there, or ctx ends.
func Discover(ctx context.Context, server string, token bootstraptoken.Token, hashes []string) (*Cluster, error) {
	content, err := signedInfo(ctx, server, token)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.Load([]byte(content))
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", bootstraptoken.ClusterInfo, server, err)
	}
	entry := config.Clusters[""]
	if entry == nil || entry.Server == "" || len(entry.CertificateAuthorityData) == 0 {
		return nil, fmt.Errorf("%s of %s has no server or no authority", bootstraptoken.ClusterInfo, server)
	}
	c := &Cluster{Server: entry.Server, Authority: entry.CertificateAuthorityData}
	found, err := c.AuthorityHashes()
	if err != nil {
		return nil, err
	}
	for _, hash := range found {
		if !slices.Contains(hashes, hash) {
			return nil, fmt.Errorf("the authority of %s has the hash %s, which is none of the given ones: it may be an impostor", server, hash)
		}
	}
	again, err := info(ctx, server, rest.TLSClientConfig{CAData: c.Authority})
	if err != nil {
		return nil, fmt.Errorf("ask %s again, verified by its authority: %w", server, err)
	}
	if again.Data[bootstraptoken.ClusterInfoKey] != content {
		return nil, fmt.Errorf("%s of %s changes: it may be an impostor", bootstraptoken.ClusterInfo, server)
	}
	return c, nil
}

// signedInfo returns the kubeconfig in cluster-info, which the token has signed.
func signedInfo(ctx context.Context, server string, token bootstraptoken.Token) (content string, err error) {
	var last error
	err = wait.PollUntilContextCancel(ctx, askAgain, true, func(ctx context.Context) (bool, error) {
		found, err := info(ctx, server, rest.TLSClientConfig{Insecure: true}) // the signature is checked
		if err != nil {
			if ctx.Err() == nil || last == nil { // the end of ctx says less than what was wrong before
				last = err
			}
			return false, nil
		}
		content = found.Data[bootstraptoken.ClusterInfoKey]
		signature := found.Data[bootstraptoken.SignaturePrefix+token.ID]
		if signature == "" {
			last = fmt.Errorf("the token with the ID %s has not signed it: it has expired, or does not sign", token.ID)
			return false, nil
		}
		if !hmac.Equal([]byte(signature), []byte(token.Sign(content))) {
			return false, errors.New("the signature is not by this token: the token is wrong, or the server an impostor")
		}
		return true, nil
	})
	if err == nil {
		return content, nil
	}
	if wait.Interrupted(err) && last != nil {
		err = last
	}
	return "", fmt.Errorf("ask %s for %s: %w", server, bootstraptoken.ClusterInfo, err)
}

// info returns cluster-info of the API server at a URL, asked without credentials.
func info(ctx context.Context, server string, tls rest.TLSClientConfig) (*v1.ConfigMap, error) {
	const patience = 10 * time.Second
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: server, TLSClientConfig: tls, Timeout: patience,
		WrapTransport: func(next http.RoundTripper) http.RoundTripper { return boundedAnswers{next} },
	})
	if err != nil {
		return nil, err
	}
	return client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, bootstraptoken.ClusterInfo, metav1.GetOptions{})
}

// boundedAnswers makes bodies of answers fail after maxAnswer.
type boundedAnswers struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	}
	return answer, err
}
