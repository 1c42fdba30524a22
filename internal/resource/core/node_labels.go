package core

// DeprecatedNodeLabel says what has replaced a node's label, if something has.
func DeprecatedNodeLabel(key string) (message string, deprecated bool) {
	message, deprecated = deprecatedNodeLabels[key]
	return message, deprecated
}
