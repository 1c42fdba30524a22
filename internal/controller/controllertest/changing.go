package controllertest

import "k8s.io/client-go/tools/cache"

// Changing is an informer whose content changes between two looks at it.
type Changing struct {
	cache.SharedIndexInformer
	// Change changes the content ahead of the second look.
	Change func(content cache.Indexer)

	looks int
}

// GetIndexer implements cache.SharedIndexInformer.
func (c *Changing) GetIndexer() cache.Indexer {
	content := c.SharedIndexInformer.GetIndexer()
	if c.looks++; c.looks == 2 {
		c.Change(content)
	}
	return content
}
