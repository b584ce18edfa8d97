/* Fields and enumerations of operators of classic machine learning (ai.onnx.ml), for params.h. */
#ifndef FLEXNN_PARAMS_CLASSIC_H
#define FLEXNN_PARAMS_CLASSIC_H

/* clang-format off */

/* Trees: x[rows, features] walks down `trees` trees; the leaves where it ends say results, which an aggregate (fx_forest)
 * and a transform (fx_transform) make of. Numbers are f32, or f64 (is_wide). in[1], int32 words: `nodes` nodes, the roots
 * first; `entries` entries; with has_base one number for each result. A node: [number][meta][child], an entry:
 * [number][result]. Bit 0 of meta says branch: feature meta >> 3 goes to node `child` if it is at most the number (bit 1:
 * if it is the number), with bit 2 also if it is NaN; else to the node after. Bit 0 unset: leaf, whose child is itself.
 * It says result meta >> 3 with its number; with bit 1 meta >> 3 entries, the first at the int32 in its number's place.
 * depth: most branches from a root to a leaf. is_plain: no bits 1 and 2 among the branches. y[rows, results] of type to;
 * a classifier (fx_classes) appends labels[rows], the number of the class. is_positive: one score wins above 1/2, not
 * above 0. */
#define FX_TREES_FIELDS(I, F)                                                                                         \
    I(is_wide) I(to) I(rows) I(features) I(trees) I(nodes) I(entries) I(results) I(depth) I(is_plain) I(aggregate)    \
    I(transform) I(classes) I(is_positive) I(has_base)

/* Probabilities y[rows, classes] that agree best with those of pairs, in[0][rows, pairs]: how probable class i is
 * against j, of pairs (0, 1), (0, 2) .. (1, 2) ..; method 2 of Wu, Lin and Weng (2004, "Probability Estimates for
 * Multi-class Classification by Pairwise Coupling"), of as many rounds as onnxruntime takes. */
#define FX_COUPLE_FIELDS(I, F) I(rows) I(classes)

/* How results of leaves come together; AVERAGE: over the trees. */
#define FX_FORESTS(X, E) X(E, AVERAGE, average) X(E, SUM, sum) X(E, MIN, min) X(E, MAX, max)

/* ai.onnx.ml's post_transform. */
#define FX_TRANSFORMS(X, E)                                                                                            \
    X(E, NONE, none)                                                                                                   \
    X(E, LOGISTIC, logistic) X(E, SOFTMAX, softmax) X(E, SOFTMAX_ZERO, softmax_zero) X(E, PROBIT, probit)

/* NONE: no classifier. MANY: the highest of the scores that leaves said wins. FIRST, SECOND: of two classes leaves say
 * only the first one's score, or the second one's. */
#define FX_CLASSES(X, E) X(E, NONE, none) X(E, MANY, many) X(E, FIRST, first) X(E, SECOND, second)

/* clang-format on */

#endif
