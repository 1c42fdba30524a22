package client

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// ReviewBackoff returns the delays between the attempts of a TokenReview or a
// SubjectAccessReview that fails: upstream's defaults for components that
// delegate authentication and authorization to the API server.
func ReviewBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
}
