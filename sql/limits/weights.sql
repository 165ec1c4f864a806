-- limits/weights: the weights of these shares, where an operator has set one.
-- index: limits_pkey
-- locks: none
-- run by: a claim from lanes, where there are weights
-- rights: monitor
-- why: there may be 100,000 weights, and a claim looks at 500 shares at most: a poll that read them all took 0.2 s
select name, most from pgqueue.limits where name = any(%(shares)s::text[]) and most > 0
