// Package certificates defines the resources of the group certificates.k8s.io.
package certificates

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return []*resource.Resource{CertificateSigningRequests(), ClusterTrustBundles(), PodCertificateRequests()}
}
