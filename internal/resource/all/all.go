// Package all lists every built-in resource.
package all

import (
	"slices"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/admissionregistration"
	"github.com/coracle-io/coracle/internal/resource/apiextensions"
	"github.com/coracle-io/coracle/internal/resource/apiregistration"
	"github.com/coracle-io/coracle/internal/resource/apps"
	"github.com/coracle-io/coracle/internal/resource/authentication"
	"github.com/coracle-io/coracle/internal/resource/authorization"
	"github.com/coracle-io/coracle/internal/resource/autoscaling"
	"github.com/coracle-io/coracle/internal/resource/batch"
	"github.com/coracle-io/coracle/internal/resource/certificates"
	"github.com/coracle-io/coracle/internal/resource/coordination"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/discovery"
	"github.com/coracle-io/coracle/internal/resource/dynamicresources"
	"github.com/coracle-io/coracle/internal/resource/flowcontrol"
	"github.com/coracle-io/coracle/internal/resource/metrics"
	"github.com/coracle-io/coracle/internal/resource/networking"
	"github.com/coracle-io/coracle/internal/resource/node"
	"github.com/coracle-io/coracle/internal/resource/policy"
	"github.com/coracle-io/coracle/internal/resource/rbac"
	"github.com/coracle-io/coracle/internal/resource/scheduling"
	"github.com/coracle-io/coracle/internal/resource/storage"
	"github.com/coracle-io/coracle/internal/resource/storagemigration"
)

// All returns the resources of every group, in the order of discovery.
func All() []*resource.Resource {
	return slices.Concat(
		core.Resources(),
		apiregistration.Resources(),
		apps.Resources(),
		authentication.Resources(),
		authorization.Resources(),
		autoscaling.Resources(),
		batch.Resources(),
		certificates.Resources(),
		networking.Resources(),
		policy.Resources(),
		rbac.Resources(),
		storage.Resources(),
		admissionregistration.Resources(),
		apiextensions.Resources(),
		scheduling.Resources(),
		coordination.Resources(),
		node.Resources(),
		discovery.Resources(),
		dynamicresources.Resources(),
		flowcontrol.Resources(),
		metrics.Resources(),
		storagemigration.Resources(),
	)
}
