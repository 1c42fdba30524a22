// Package certificates defines the resources of the group certificates.k8s.io.
package certificates

import "github.com/coracle-io/coracle/internal/resource"

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 17300}, CertificateSigningRequests(), ClusterTrustBundles(), PodCertificateRequests())
}
